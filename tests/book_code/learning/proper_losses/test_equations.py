"""Equation (2) where there is no link; the page compares (1) and (2) by brute force."""

import torch

from bayesloss_book.learning.proper_losses.equations import margin_representation

X = torch.linspace(-4, 4, 17, dtype=torch.float64)


def test_flat_margin_has_no_link():
    inverse_link, slope = margin_representation(lambda z: torch.relu(1 - z) ** 2 * 0, X)
    assert torch.isnan(inverse_link).all()
    assert (slope == 0).all()
