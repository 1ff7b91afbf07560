from __future__ import annotations

import pickle

import numpy as np
import pytest

from privmix.rng import KeyStream, MasterKey, fresh_secret


def test_chacha20_known_answer():
    # RFC 8439, A.1, test vector 1: the key stream of the all-zero key and nonce.
    expected = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28")
    assert KeyStream(bytes(32)).words(2).astype("<u8").tobytes() == expected


def test_stream_does_not_depend_on_how_it_is_read(key):
    whole = key.stream("a").words(300_000)
    stream = key.stream("a")
    parts = np.concatenate([stream.words(n) for n in (1, 7, 149_992, 150_000)])
    assert np.array_equal(whole, parts)


def test_every_name_and_context_has_its_own_stream():
    first = MasterKey.for_test(0, b"one")
    streams = [
        first.stream("a"),
        first.stream("b"),
        first.stream("a", shard=1),
        first.stream("a", block=1),
        first.stream("a", shard=1, block=1),
        MasterKey.for_test(0, b"two").stream("a"),
        MasterKey.for_test(1, b"one").stream("a"),
        MasterKey(fresh_secret(), b"one").stream("a"),
        MasterKey(fresh_secret(), b"one").stream("a"),
    ]
    assert len({stream.integer() for stream in streams}) == len(streams)


def test_the_secret_is_never_shown_or_serialised():
    key = MasterKey(b"s" * 32, b"context")
    assert "s" * 8 not in repr(key)
    with pytest.raises(TypeError, match="never serialised"):
        pickle.dumps(key)


def test_a_stream_never_repeats_itself(key):
    stream = key.stream("a")
    stream._left = 8
    stream.words(1)
    with pytest.raises(RuntimeError, match="exhausted"):
        stream.words(1)


def test_no_two_of_many_shards_and_blocks_share_a_stream(key):
    streams = [
        key.stream(purpose, shard=shard, block=block)
        for purpose in ("noise", "inclusion")
        for shard in range(40)
        for block in range(40)
    ]
    assert len({stream.integer() for stream in streams}) == len(streams)
