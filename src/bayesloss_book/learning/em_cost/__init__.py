"""The chapter on what EM costs: its figure; what is measured is linkgistic's."""
