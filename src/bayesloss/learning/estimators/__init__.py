"""Estimators and displays after scikit-learn: the top floor, which nothing else imports.

May import every other folder of ``learning``. Begin with ``linkgistic``.
"""
