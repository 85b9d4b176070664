"""Winners of `tune`: which one counts, how they are kept, what a cache may hold instead."""

import json

import pytest

import sparsegpu
from sparsegpu import _cache
from sparsegpu.__main__ import main
from sparsegpu._cache import write_entry
from sparsegpu.engines.cuda import candidates, winners
from sparsegpu.engines.cuda.paths import BSR
from sparsegpu.engines.cuda.paths._dispatch import works_of
from sparsegpu.engines.cuda.paths._fields import ConfigError
from sparsegpu.engines.cuda.winners import Snapshot
from winner_cases import FAMILY, KIND, winner


def test_nearest_winner():
    wide = KIND._replace(shape=(4096, 4096, 8192))
    known = Snapshot([winner(stages=2), winner(wide, stages=3)])
    assert known.config(KIND)["stages"] == 2
    assert known.config(KIND._replace(shape=(4096, 4096, 7000)))["stages"] == 3
    assert known.config(KIND._replace(shape=(4096, 4096, 5000)))["stages"] == 2
    assert known.config(KIND._replace(bucket=KIND.bucket - 1))["stages"] == 2
    # As far from one as from the other: the smaller one, whatever the order.
    low, high = (KIND._replace(bucket=KIND.bucket + step) for step in (-1, 1))
    two = [winner(high, stages=2), winner(low, stages=3)]
    for order in (two, two[::-1]):
        assert Snapshot(order).config(KIND)["stages"] == 3
    # An octave away, in all, nothing is known.
    assert known.config(KIND._replace(bucket=KIND.bucket - 2)) is None
    assert known.config(KIND._replace(shape=(2048, 4096, 4096))) is None
    assert known.config(KIND._replace(shape=(3000, 3000, 3000))) is None
    assert known.config(KIND._replace(shape=(64, 64, 64))) is None
    assert known.config(KIND._replace(shape=(4096, 4096, 0))) is None
    for changed in ({"arch": "80"}, {"dtype": "float16"}, {"blocksize": (16, 16)}):
        assert known.config(KIND._replace(family=FAMILY._replace(**changed))) is None


def test_winners_are_kept(winner_cache, monkeypatch):
    before, generation = winners.snapshot(), winners.generation
    winners.keep(winner(stages=3))
    assert winners.snapshot() is not before and KIND not in before.winners
    assert winners.generation == generation + 1
    monkeypatch.setattr(winners, "_snapshot", None)  # a new process
    assert winners.snapshot().config(KIND) == {"path": "wgmma", "stages": 3}
    winners.keep(winner(stages=2))
    assert [w.config["stages"] for w in winners.users_winners()] == [2]
    other = {"format": winners.FORMAT, "version": "0", **winner(KIND._replace(bucket=0)).as_dict()}
    write_entry("tuned", "f" * 64, json.dumps(other).encode())
    older = {"version": sparsegpu.__version__, **winner(KIND._replace(bucket=0)).as_dict()}
    write_entry("tuned", "e" * 64, json.dumps(older).encode())  # of before formats had a number
    assert len(winners.users_winners()) == 1
    assert winners.forget() == 3 and winners.users_winners() == []
    assert winners.generation == generation + 3
    assert winners.snapshot().winners.keys() == before.winners.keys()


def spoilt(**changes):
    entry = {"format": winners.FORMAT, "version": sparsegpu.__version__, **winner().as_dict()}
    return json.dumps(entry | changes).encode()


OTHER = {
    "nothing": b"",
    "no JSON": b"{",
    "no text": b"\xff\xfe",
    "nested": b"[" * 100_000,
    "no object": b"[1, 2]",
    "null": b"null",
    "no fields": json.dumps({"format": winners.FORMAT, "version": sparsegpu.__version__}).encode(),
    "no path": spoilt(config={}),
    "path of another type": spoilt(config={"path": ["wgmma"]}),
    "a field of another type": spoilt(config={"path": "wgmma", "stages": {}}),
    "config of another type": spoilt(config=3),
    "shape too short": spoilt(shape=[4096, 4096]),
    "shape of nothing": spoilt(shape=[4096, 0, 4096]),
    "shape of words": spoilt(shape=["4096"] * 3),
    "huge shape": spoilt(shape=[10**400, 1, 1]),
    "block size": spoilt(blocksize=[[32], 32]),
    "bucket": spoilt(bucket="-7"),
    "huge bucket": spoilt(bucket=-(10**400)),
    "times": spoilt(ms=0),
    "time of words": spoilt(model_ms="1.0"),
    "huge time": spoilt(ms=10**400),
    "NaN": spoilt(ms=float("nan")),
    "op": spoilt(op=["bsr_addmm"]),
}


@pytest.mark.parametrize("content", OTHER.values(), ids=OTHER)
def test_other_content_is_set_aside_with_one_warning(winner_cache, monkeypatch, capsys, content):
    monkeypatch.setattr(_cache, "_warned", set())
    shipped = winners.snapshot().winners.keys()
    for key in ("e" * 64, "f" * 64):
        write_entry("tuned", key, content)
    monkeypatch.setattr(winners, "_snapshot", None)
    with pytest.warns(
        RuntimeWarning, match="ignored the cache entry .*e{64} .*; remove it"
    ) as told:
        assert winners.snapshot().winners.keys() == shipped
        assert winners.users_winners() == []
        assert main(["tune", "--show"]) == 0
    assert len(told) == 1 and "nothing tuned yet" in capsys.readouterr().out
    winners.keep(winner(stages=3))
    assert winners.users_winners() == [winner(stages=3)]
    assert winners.forget() == 3


def test_a_winner_of_a_path_that_there_is_not_is_passed_over():
    with pytest.raises(ConfigError, match=r"config\['path'\]': expected another path.* 'gone'"):
        works_of(BSR, None, {"path": "gone"})


def test_shipped_winners_are_candidates():
    for shipped in winners.shipped_winners():
        path = shipped.config["path"]
        assert path in candidates.paths(shipped.kind)
        assert candidates.start(shipped.kind, **shipped.config) == shipped.config, (
            "measure it anew, or drop it, when a path's fields change"
        )
        assert shipped.ms * 1.03 <= shipped.model_ms
