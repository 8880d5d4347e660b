"""The catalogue: names, sources, and counts against what the makers publish."""

import csv
import json

import pytest
from click.testing import CliRunner

from fleetplan import catalog
from fleetplan.catalog import squashed
from fleetplan.cli import gpus as gpus_verb
from fleetplan.cli import model as model_verb
from fleetplan.cli import models as models_verb
from fleetplan.errors import InputError


@pytest.mark.parametrize("name", ["h100-sxm", "H100 SXM", "h100_sxm", "H100"])
def test_a_gpu_answers_to_what_people_call_it(name):
    gpu = catalog.gpu(name)
    assert gpu.name == "h100-sxm"
    assert gpu.memory_usable_bytes == 81_559 * 2**20 < gpu.memory_bytes == 80 * 2**30


@pytest.mark.parametrize("name", ["h100-smx", "unknown"])
def test_an_unknown_gpu_is_refused(name):
    with pytest.raises(InputError, match="unknown GPU"):
        catalog.gpu(name)


def test_no_name_means_two_things():
    for entries in (catalog.gpus(), catalog.models()):
        names = [
            wanted for entry in entries for wanted in {squashed(entry.name), *map(squashed, entry.aliases)}
        ]
        assert sorted(set(names)) == sorted(names)


def test_models_have_the_published_counts():
    models = catalog.models()
    assert len(models) >= 50
    for model in models:
        if model.published_parameters:
            assert model.architecture.parameters_total == pytest.approx(model.published_parameters, rel=0.005)


def test_every_value_has_a_source(project):
    with (project / "data" / "SOURCES.csv").open() as stream:
        rows = {(row["subject"], row["file"]): row for row in csv.DictReader(stream)}
    for gpu in catalog.gpus():
        values = {
            "memory_bytes": gpu.memory_bytes,
            "memory_usable_bytes": gpu.memory_usable_bytes,
            "bandwidth_bytes_per_s": gpu.bandwidth_bytes_per_s,
            "link.bytes_per_s_per_direction": gpu.link.bytes_per_s_per_direction,
            **{f"flop_per_s.{kind}": rate for kind, rate in gpu.flop_per_s.items()},
            **({"tdp_w": gpu.tdp_w} if gpu.tdp_w else {}),
            **({"network_bytes_per_s": gpu.network_bytes_per_s} if gpu.network_bytes_per_s else {}),
        }
        for what, value in values.items():
            row = rows[f"{gpu.name} {what}", "data/gpus.yaml"]
            assert float(row["value"]) == pytest.approx(value)
            assert row["source"]
    for model in catalog.models():
        row = rows[f"{model.name} config", f"data/models/{model.name}.yaml"]
        assert int(row["value"]) == model.architecture.parameters_total


@pytest.mark.parametrize("verb", [gpus_verb.command, models_verb.command])
def test_lists(verb):
    runner = CliRunner()
    assert len(json.loads(runner.invoke(verb, ["--json"], catch_exceptions=False).output)) >= 30
    assert runner.invoke(verb, [], catch_exceptions=False).exit_code == 0


def test_every_model_shows_its_arithmetic():
    for model in catalog.models():
        text = "\n".join(model_verb.lines(model))
        assert f"{model.architecture.parameters_total:,}" in text
        read = json.loads(json.dumps(model_verb.summary(model), allow_nan=False))
        assert read["kv_bytes_at"]["1024"] <= read["kv_bytes_at"]["131072"]
        assert {"family", "parameters_active", "kv_bytes_per_token", "layers", "notes"} < set(read)


def test_verb_prints_json():
    result = CliRunner().invoke(
        model_verb.command, ["meta-llama/Llama-3.3-70B-Instruct", "--json"], catch_exceptions=False
    )
    assert json.loads(result.output)["kv_bytes_at"]["8192"] == 327_680 * 8192


@pytest.mark.parametrize("path", ["/no/such/path", "./no-such-model", "~/nothing"])
def test_a_path_that_is_not_there_is_told_as_a_path(path):
    with pytest.raises(InputError, match=r"no config\.json there"):
        catalog.model(path)
