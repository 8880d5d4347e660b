"""The worked numbers of arithmetic intensity, and of the paged KV cache's end-to-end time."""

import pytest

from fleetplan import catalog
from fleetplan.physics.intensity import (
    decode_attention_intensity,
    decode_ridge_batch,
    matmul_intensity,
    ridge_flop_per_byte,
)


@pytest.mark.parametrize(
    ("flop_per_s", "bandwidth", "ridge", "batches"),
    [
        (989e12, 3.35e12, 295.2, {2.0: 295.2, 1.0: 147.6}),
        (312e12, 2.0e12, 156.0, {2.0: 156.0, 1.0: 78.0}),
        (312e12, 2.04e12, 152.9, {}),
    ],
)
def test_ridge(flop_per_s, bandwidth, ridge, batches):
    got = ridge_flop_per_byte(flop_per_s, bandwidth)
    assert got == pytest.approx(ridge, abs=0.05)
    for bytes_per_weight, batch in batches.items():
        assert decode_ridge_batch(got, bytes_per_weight) == pytest.approx(batch, abs=0.05)


def test_the_catalogue_has_the_h100s_ridge():
    gpu = catalog.gpu("h100-sxm")
    assert ridge_flop_per_byte(gpu.flop_per_s["bf16"], gpu.bandwidth_bytes_per_s) == pytest.approx(
        295.2, abs=0.05
    )


@pytest.mark.parametrize(
    ("tokens", "intensity"), [(1, 0.9996), (16, 15.9006), (153, 144.3715), (512, 426.6667)]
)
def test_matmul_intensity(tokens, intensity):
    assert matmul_intensity(tokens, 5120, 5120) == pytest.approx(intensity, abs=5e-5)


def test_decode_attention_intensity():
    assert decode_attention_intensity(32, 32) == 1
    assert decode_attention_intensity(64, 8) == 8
