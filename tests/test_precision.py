"""Contexts of a precision: made once in a thread, shared with no other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from privmix.precision import precise


def test_numbers_have_as_many_bits_as_were_asked_for():
    third = {bits: precise(bits).mpf(1) / 3 for bits in (100, 300)}
    for bits, number in third.items():
        error = abs(3 * precise(1000).mpf(number) - 1)
        assert 2.0 ** -(bits + 2) < error < 2.0 ** -(bits - 2)


def test_a_thread_makes_them_once_and_has_its_own():
    with ThreadPoolExecutor(1) as pool:
        one, two = (pool.submit(precise, 123).result() for _ in range(2))
    assert one is two
    assert precise(123) is precise(123) is not one
