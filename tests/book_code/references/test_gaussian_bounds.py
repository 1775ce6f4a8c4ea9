"""The rivals of the exact mean: each says what its name says, and is where it should be."""

import pytest
import torch

from bayesloss import ISGP, Bernoulli, Gaussian, TrigonometricKernel, variational
from bayesloss.learning.inference.likelihoods import normal_average
from bayesloss.learning.inference.log_joint import LogJoint
from bayesloss_book.references.gaussian_bounds import BOUNDS, best_gaussian

PRIOR = ISGP(TrigonometricKernel(a=1.5, c=0.25, n_basis=6))
X = torch.linspace(-1, 1, 30, dtype=torch.float64)
LABELS = (torch.sin(12 * X) + 2 * X > 0).double()


def test_means_of_one_gaussian():
    """Jaakkola and Jordan's is lowest; a normal law by 60 nodes; each with its divergence."""
    joint = LogJoint.of(PRIOR, Bernoulli(), X, LABELS)
    unit = 4 * torch.eye(7, dtype=torch.float64)
    m = PRIOR.start(X)
    trial = {name: kind(joint)(m, unit) for name, kind in BOUNDS.items()}
    moments = joint.moments(m, trial["exact"].root, trial["exact"].slopes)
    normal = normal_average(Bernoulli(), *moments, joint.data, 60)
    assert float(trial["normal"].value - normal) == pytest.approx(
        float(trial["bound"].value - Bernoulli().expected_log_density(*moments, joint.data)),
        abs=1e-6,  # of 20 nodes
    )
    assert trial["bound"].value < min(trial["normal"].value, trial["exact"].value) - 0.1
    assert float(trial["exact"].value) != pytest.approx(float(trial["normal"].value), abs=1e-3)


def test_the_best_of_each():
    found = {name: best_gaussian(name, PRIOR, Bernoulli(), X, LABELS) for name in BOUNDS}
    library = variational(PRIOR, Bernoulli(), X, LABELS)
    assert found["exact"].log_evidence == library.log_evidence == library.evidence_bound
    assert found["bound"].log_evidence == found["bound"].evidence_bound < library.log_evidence
    same = [best_gaussian(name, PRIOR, Gaussian(4.0), X, X).log_evidence for name in BOUNDS]
    assert same[0] == pytest.approx(same[1], abs=1e-9) == pytest.approx(same[2], abs=1e-9)
