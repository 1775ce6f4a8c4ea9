"""What the pages on Walder and Nock (2020) call."""
