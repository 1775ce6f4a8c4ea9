"""Learn the loss: Walder and Nock (2020)."""
