"""Tests of the log probabilities of labels, against automatic differentiation."""

import pytest
import torch

from bayesloss.learning.weights import label_likelihood
from bayesloss.learning.weights.label_likelihood import counted_log_probabilities

N = 37
FITS = 3


def curves(scores):
    return scores + scores.sin() / 2, 1 + scores.cos() / 2


@pytest.mark.parametrize("part", [5, 80, 2**14])
@pytest.mark.parametrize("K", [1, 3])
def test_values_and_slopes(K, part, monkeypatch):
    monkeypatch.setattr(label_likelihood, "_PART", part)
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn((FITS, K, N), dtype=torch.float64, generator=generator)
    counted = torch.rand((FITS, N), dtype=torch.float64, generator=generator)
    classes = torch.arange(N) % max(K, 2)
    labels = torch.stack([classes == k for k in ([1] if K == 1 else range(K))]).double()

    def total(scores):
        nu, _ = curves(scores)
        if K == 1:
            p = torch.sigmoid(nu[:, 0])
            log_p = torch.where(labels[0] == 1, p.log(), (1 - p).log())
        else:
            log_p = torch.log_softmax(nu, dim=1).gather(1, classes.expand(FITS, 1, N))[:, 0]
        return log_p * counted

    values, slopes = counted_log_probabilities(scores, curves, labels, counted)
    torch.testing.assert_close(values.sum(1), total(scores), rtol=1e-10, atol=1e-12)
    at = scores.clone().requires_grad_()
    (expected,) = torch.autograd.grad(total(at).sum(), at)
    torch.testing.assert_close(slopes, expected, rtol=1e-10, atol=1e-12)
