"""Learn the loss: Walder and Nock (2020), and what goes on from there.

Folders, each of which imports only what stands before it: ``sources`` and ``data``, ``inference``
and ``weights``, ``evidence``, ``links``, ``calibration`` and ``estimators``.
"""
