"""For all tests: figures are drawn without a screen."""

import os

os.environ["MPLBACKEND"] = "Agg"
