"""The catalogue against the names that nvidia-smi prints: each matches its own model."""

import re

import pytest

from tests.unit.planner.clusters import CATALOGUE

PRODUCTS = {
    "Tesla V100-SXM2-32GB": {"v100"},
    "Tesla V100-SXM2-16GB": {"v100", "v100-16"},
    "Tesla P100-PCIE-16GB": {"p100"},
    "Tesla T4": {"t4"},
    "NVIDIA A10": {"a10"},
    "NVIDIA A10G": {"a10"},
    "NVIDIA A16": {"a16"},
    "NVIDIA A2": {"a2"},
    "NVIDIA A30": {"a30"},
    "NVIDIA A40": {"a40"},
    "NVIDIA RTX A4000": {"a4000"},
    "NVIDIA RTX A6000": {"a6000"},
    "NVIDIA RTX 6000 Ada Generation": {"rtx6000-ada"},
    "NVIDIA A100-SXM4-40GB": {"a100", "a100-40"},
    "NVIDIA A100-SXM4-80GB": {"a100", "a100-80"},
    "NVIDIA A100 80GB PCIe": {"a100", "a100-80"},
    "NVIDIA GeForce RTX 3090": {"rtx3090"},
    "NVIDIA GeForce RTX 4090": {"rtx4090"},
    "NVIDIA GeForce RTX 2080 Ti": {"rtx2080ti"},
    "NVIDIA L4": {"l4"},
    "NVIDIA L40": {"l40"},
    "NVIDIA L40S": {"l40s"},
    "NVIDIA H100 80GB HBM3": {"h100"},
    "NVIDIA H100 NVL": {"h100", "h100-nvl"},
    "NVIDIA H200": {"h200"},
    "NVIDIA GH200 480GB": {"gh200"},
    "NVIDIA B200": {"b200"},
    "NVIDIA GB200": {"gb200"},
}


@pytest.mark.parametrize(("product", "models"), PRODUCTS.items())
def test_product_names(product, models):
    """And no other's. The patterns use only what grep -E and Python read alike."""
    matching = {
        name
        for name, model in CATALOGUE.models.items()
        if model.pattern and re.search(model.pattern, product, re.IGNORECASE)
    }
    assert matching == models
