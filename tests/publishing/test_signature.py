"""Signatures under certificates: OpenSSH agrees, and whatever does not fit is refused by name."""

from __future__ import annotations

import json
import shutil
import subprocess
import time as clock
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
)
from typer.testing import CliRunner

from builders import fed_pipe, make_data, make_plan, make_schema
from privmix import InvalidInputError, release, verify
from privmix.cli import app
from privmix.mixer import Rows
from privmix.publishing.signature import (
    NAMESPACE,
    check_signature,
    load_signing_key,
    read_signature,
    sign,
    sign_folder,
)
from signing_keys import KEY, OTHER, public_line, write_key
from tampering import reasons, rewrite

SIGNATURE = "certificate.json.sig"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    plan = make_plan(make_schema(), "poisson", 2.0, mix_size=6, num_mixtures=20)
    folder = tmp_path_factory.mktemp("made") / "r"
    release(*make_data(plan.data_schema, 60), plan, out=folder, sign_key=KEY)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "r"))


@pytest.fixture
def signers(tmp_path):
    def write(*lines: str) -> Path:
        path = tmp_path / "allowed_signers"
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write


def test_a_signed_release_is_valid_and_names_its_signer(folder, signers):
    path = signers("# ours", f"alice@example.org {public_line(KEY)} office")
    outcome = verify(folder, signers=path)
    assert outcome.valid
    assert outcome.origin.signer == "alice@example.org"
    assert "signed by alice@example.org with the key SHA256:" in outcome.origin.statement
    assert verify(folder, signers=path, identity="alice@example.org").valid


def test_without_a_list_a_signature_vouches_for_nothing(folder):
    origin = verify(folder).origin
    assert origin.signer is None
    assert "of which nothing is known here" in origin.statement
    (folder / SIGNATURE).unlink()
    assert verify(folder).origin.statement.startswith("nothing vouches for it")
    told = verify(folder, expect_digest=verify(folder).digest).origin
    assert told.digest_expected
    assert "is the one that was expected" in told.statement


def test_a_missing_signature_is_refused(folder, signers):
    (folder / SIGNATURE).unlink()
    assert reasons(folder) == ""
    assert "no such file" in reasons(folder, signers=signers(f"a {public_line(KEY)}"))


def test_a_foreign_signature_is_refused(folder, signers):
    allowed = signers(f"bob@example.org {public_line(OTHER)}")
    assert "which it does not have" in reasons(folder, signers=allowed)
    sign_folder(folder, OTHER)
    assert reasons(folder, signers=allowed) == ""


def test_a_signature_of_something_else_is_refused_even_without_a_list(folder):
    (folder / SIGNATURE).write_bytes(sign(b"another certificate", KEY))
    assert "one of something else" in reasons(folder)


def test_another_namespace_is_refused(folder):
    content = (folder / "certificate.json").read_bytes()
    (folder / SIGNATURE).write_bytes(sign(content, KEY, namespace="file"))
    assert "namespace" in reasons(folder)


def test_every_truncation_and_every_changed_byte_is_refused(folder):
    content = (folder / "certificate.json").read_bytes()
    whole = sign(content, KEY)
    check_signature(content, whole)
    for size in range(len(whole) - 1):  # without the last line end it is whole
        with pytest.raises(InvalidInputError, match=r"certificate\.json\.sig"):
            check_signature(content, whole[:size])
    lines = whole.splitlines(keepends=True)
    for row in range(1, len(lines) - 1):
        for place in range(0, len(lines[row]) - 1, 3):
            changed = bytearray(lines[row])
            changed[place] = ord("A") if changed[place] != ord("A") else ord("B")
            broken = b"".join([*lines[:row], bytes(changed), *lines[row + 1 :]])
            with pytest.raises(InvalidInputError):
                check_signature(content, broken)


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "huge"])
def test_what_is_no_small_regular_file_is_refused(folder, kind, tmp_path):
    path = folder / SIGNATURE
    kept = path.read_bytes()
    path.unlink()
    if kind == "link":
        (tmp_path / "elsewhere").write_bytes(kept)
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        subprocess.run(["mkfifo", path], check=True)
    else:
        path.write_bytes(kept + b"\n" * (1 << 20))
    assert SIGNATURE in reasons(folder)


def test_the_signature_is_no_file_of_the_certificate(folder):
    document = json.loads((folder / "certificate.json").read_text())
    assert SIGNATURE not in document["files"]
    (folder / "data" / SIGNATURE).write_text("x")
    assert "not part of the release" in reasons(folder)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("cert-authority", "certificate authority"),
        ('namespaces="file,git"', "for the namespaces file,git"),
        ('valid-before="20200101"', "was valid only before"),
        ('valid-after="29990101Z"', "is valid only after"),
        ('namespaces="privmix-*,!privmix-certificate"', "for the namespaces"),
    ],
)
def test_options_of_a_signer_hold(folder, signers, options, words):
    assert words in reasons(folder, signers=signers(f"a@b {options} {public_line(KEY)}"))


@pytest.mark.parametrize(
    "options",
    [
        'namespaces="privmix-certificate"',
        'namespaces="file,privmix-*",valid-after="20200101",valid-before="29991231235959Z"',
    ],
)
def test_options_that_allow_it_allow_it(folder, signers, options):
    assert reasons(folder, signers=signers(f"a@b {options} {public_line(KEY)}")) == ""


def test_identities_are_patterns(folder, signers):
    path = signers(f"*@example.org,!eve@example.org {public_line(KEY)}")
    assert reasons(folder, signers=path, identity="ann@example.org") == ""
    for other in ("eve@example.org", "ann@example.com"):
        assert "is for *@example.org" in reasons(folder, signers=path, identity=other)


@pytest.mark.parametrize(
    "principals", ["!alice", "!alice,!bob", "alice,!alice", "*,!*", "!bob,alice,!a*", ","]
)
def test_a_line_that_names_nobody_vouches_for_nothing(folder, signers, principals):
    told = reasons(folder, signers=signers(f"{principals} {public_line(KEY)}"))
    assert f"is for nobody: {principals}" in told


def test_patterns_are_of_bytes(folder, signers):
    """Which ``?`` stands for one of: OpenSSH knows no other characters."""
    path = signers(f"??,x? {public_line(KEY)}")
    assert reasons(folder, signers=path, identity="é") == ""
    assert "is for" in reasons(folder, signers=path, identity="xé")


@pytest.mark.parametrize("time", ["00010101", "00010101Z", "19691231235959Z", "२०२९०१०१"])
def test_times_that_openssh_does_not_have_are_no_error_of_python(
    folder, signers, monkeypatch, time
):
    for zone in ("XXX-9", "XXX+5"):  # east of Greenwich, west of it
        monkeypatch.setenv("TZ", zone)
        clock.tzset()
        options = f'valid-before="{time}"'
        path = signers(f"a {options} {public_line(KEY)}")
        with pytest.raises(InvalidInputError, match=r"line 1: expected times from 1970 on"):
            verify(folder, signers=path)
    monkeypatch.undo()
    clock.tzset()


@pytest.mark.parametrize(
    "line",
    [
        "alice",
        "alice\u00a0{key}",
        "alice\u2003{key}",
        'al"i"ce {key}',
        'alice namespaces="*\\"" {key}',
        "alice {key}\u00a0a",
    ],
)
def test_only_spaces_and_tabs_are_blanks(folder, signers, line):
    path = signers(line.replace("{key}", public_line(KEY).strip()))
    with pytest.raises(InvalidInputError, match="line 1"):
        verify(folder, signers=path, identity="alice")


@pytest.mark.parametrize(
    "line",
    ["alice", "alice ssh-ed25519", "alice ssh-ed25519 !!!", "a no-such-option ssh-ed25519 AAAA"],
)
def test_a_line_that_is_not_understood_is_refused_with_its_number(folder, signers, line):
    with pytest.raises(InvalidInputError, match="line 2"):
        verify(folder, signers=signers(f"a {public_line(KEY)}", line))


def test_other_files_of_signers_are_refused(folder, signers, tmp_path):
    with pytest.raises(InvalidInputError, match="at least one"):
        verify(folder, signers=signers())
    with pytest.raises(InvalidInputError, match="No such file"):
        verify(folder, signers=tmp_path / "none")
    with pytest.raises(InvalidInputError, match="identity"):
        verify(folder, identity="alice")


def test_pipes_are_neither_signers_nor_keys(folder, tmp_path):
    """To which nobody may ever write."""
    pipe = fed_pipe(tmp_path / "pipe")
    with pytest.raises(InvalidInputError, match="signers .*pipe: .*got a pipe"):
        verify(folder, signers=pipe)
    with pytest.raises(InvalidInputError, match="key .*pipe: .*got a pipe"):
        load_signing_key(pipe)


def test_keys_of_other_kinds_are_refused(tmp_path):
    path = write_key(tmp_path / "rsa", rsa.generate_private_key(65537, 2048))
    with pytest.raises(InvalidInputError, match="another kind"):
        load_signing_key(path)
    (tmp_path / "text").write_text("no key")
    with pytest.raises(InvalidInputError, match="Ed25519 private key"):
        load_signing_key(tmp_path / "text")


def test_encrypted_keys_want_their_passphrase(tmp_path):
    pytest.importorskip("bcrypt")
    path = write_key(tmp_path / "key", passphrase=b"open sesame")
    with pytest.raises(InvalidInputError, match="a passphrase"):
        load_signing_key(path)
    with pytest.raises(InvalidInputError, match="the passphrase of the key"):
        load_signing_key(path, lambda: "wrong")
    found = load_signing_key(path, lambda: "open sesame")
    assert found.public_key() == KEY.public_key()


def test_a_test_seed_cannot_be_signed(tmp_path):
    plan = make_plan(make_schema(), "poisson", 2.0, mix_size=6, num_mixtures=20)
    data = make_data(plan.data_schema, 60)
    with pytest.raises(InvalidInputError, match="sign_key"):
        release(*data, plan, out=tmp_path / "r", sign_key=KEY, test_seed=0)
    release(*data, plan, out=tmp_path / "r", test_seed=0)
    with pytest.raises(InvalidInputError, match="protects nobody"):
        sign_folder(tmp_path / "r", KEY)


def test_when_it_was_signed_does_not_show(folder):
    assert (folder / SIGNATURE).stat().st_mtime == (folder / "certificate.json").stat().st_mtime


class TestCommand:
    def run(self, *arguments):
        return CliRunner().invoke(app, list(map(str, arguments)))

    def test_sign_and_verify(self, folder, signers, tmp_path):
        (folder / SIGNATURE).write_bytes(b"what was there before")
        key = write_key(tmp_path / "key")
        signed = self.run("sign", folder, "--key", key, "--json")
        assert signed.exit_code == 0, signed.output
        told = json.loads(signed.stdout)
        assert told["namespace"] == NAMESPACE
        path = signers(f"alice {public_line(KEY)}")
        verified = self.run("verify", folder, "--signer", path, "--json")
        assert json.loads(verified.stdout)["origin"]["signer"] == "alice"
        printed = self.run("verify", folder, "--signer", path, "--identity", "alice")
        assert "origin: signed by alice" in printed.stdout
        refused = self.run("verify", folder, "--signer", path, "--identity", "bob")
        assert refused.exit_code == 1
        assert "NOT valid" in refused.stdout

    def test_what_is_not_valid_is_not_signed(self, folder, tmp_path):
        (folder / "extra").write_text("x")
        result = self.run("sign", folder, "--key", write_key(tmp_path / "key", OTHER))
        assert result.exit_code == 1
        assert "NOT signed" in result.stdout
        assert read_signature((folder / SIGNATURE).read_bytes()).public_key.endswith(
            KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        )

    @pytest.mark.parametrize("old", ["junk", "link", "none"])
    def test_rows_are_looked_at_whatever_the_old_signature_is(self, folder, tmp_path, old):
        rewrite(
            folder, lambda rows: Rows(np.zeros_like(rows.features), rows.labels, rows.label_weights)
        )
        path = folder / SIGNATURE
        path.unlink()
        if old == "junk":
            path.write_bytes(b"junk")
        elif old == "link":
            path.symlink_to(tmp_path / "elsewhere")
        result = self.run("sign", folder, "--key", write_key(tmp_path / "key"))
        assert result.exit_code == 1
        assert "vary less than the stated noise" in result.stdout
        assert not path.is_file() or path.read_bytes() == b"junk"
        # What is wrong with the origin hides nothing either.
        assert "vary less than the stated noise" in reasons(folder)

    @pytest.mark.parametrize("name", ["certificate.json.sig.extra", "certificate.json.sigs"])
    def test_a_file_whose_name_begins_as_the_signatures_is_not_signed(self, folder, tmp_path, name):
        (folder / name).write_text("x")
        result = self.run("sign", folder, "--key", write_key(tmp_path / "key"))
        assert result.exit_code == 1
        assert f"{name}: not part of the release" in result.stdout

    def test_a_link_in_the_signatures_place_is_replaced(self, folder, tmp_path):
        elsewhere = tmp_path / "elsewhere"
        elsewhere.write_text("kept")
        (folder / SIGNATURE).unlink()
        (folder / SIGNATURE).symlink_to(elsewhere)
        result = self.run("sign", folder, "--key", write_key(tmp_path / "key"))
        assert result.exit_code == 0, result.output
        assert verify(folder).valid
        assert elsewhere.read_text() == "kept"

    def test_another_certificate_than_the_checked_one_is_not_signed(self, folder):
        with pytest.raises(InvalidInputError, match="the certificate that was checked"):
            sign_folder(folder, KEY, digest="0" * 64)

    def test_a_passphrase_comes_from_the_environment_or_a_file(self, folder, tmp_path):
        pytest.importorskip("bcrypt")
        key = write_key(tmp_path / "key", passphrase=b"open sesame")
        arguments = ["sign", str(folder), "--key", str(key)]
        runner = CliRunner()
        asked = runner.invoke(app, arguments)
        assert "nobody to ask" in str(asked.exception)
        secret = {"PRIVMIX_KEY_PASSPHRASE": "open sesame"}
        assert runner.invoke(app, arguments, env=secret).exit_code == 0
        (tmp_path / "words").write_text("open sesame\n")
        named = [*arguments, "--passphrase-file", str(tmp_path / "words")]
        assert runner.invoke(app, named).exit_code == 0


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no OpenSSH here")
class TestOpenSSH:
    """A stock ssh-keygen agrees in both directions."""

    def check(self, folder, signers, identity="alice", namespace=NAMESPACE):
        command = ["ssh-keygen", "-Y", "verify", "-f", signers, "-I", identity]
        command += ["-n", namespace, "-s", folder / SIGNATURE]
        with (folder / "certificate.json").open("rb") as content:
            return subprocess.run(command, stdin=content, capture_output=True, text=True)

    def test_ssh_keygen_verifies_ours(self, folder, signers):
        path = signers(f"alice {public_line(KEY)}")
        assert self.check(folder, path).returncode == 0
        assert self.check(folder, path, namespace="file").returncode != 0
        assert self.check(folder, path, identity="bob").returncode != 0
        with (folder / "certificate.json").open("ab") as file:
            file.write(b" ")
        assert self.check(folder, path).returncode != 0

    def test_we_verify_what_ssh_keygen_signed(self, folder, signers, tmp_path):
        key = write_key(tmp_path / "key")
        (folder / SIGNATURE).unlink()
        command = ["ssh-keygen", "-Y", "sign", "-f", key, "-n", NAMESPACE]
        subprocess.run([*command, folder / "certificate.json"], check=True, capture_output=True)
        assert reasons(folder, signers=signers(f"alice {public_line(KEY)}")) == ""

    @pytest.mark.parametrize(
        "line",
        [
            "alice {key}",
            "!alice {key}",
            "*,!alice {key}",
            "*,!bob {key}",
            "alice\u00a0{key}",
            "alice\t{key}",
            '"alice" {key}',
            "??ice {key}",
            "al[i]ce {key}",
            'alice namespaces="privmix-*" {key}',
            'alice namespaces="!privmix-*" {key}',
            'alice valid-before="00010101" {key}',
            'alice valid-before="२०२९०१०१" {key}',
            'alice valid-before="20990101" {key}',
        ],
    )
    def test_no_line_is_taken_that_it_refuses(self, folder, signers, line):
        path = signers(line.replace("{key}", public_line(KEY).strip()))
        refused = self.check(folder, path).returncode != 0
        try:
            ours = verify(folder, signers=path, identity="alice").valid
        except InvalidInputError:
            ours = False
        assert ours == (not refused)

    def test_signatures_have_the_same_bytes(self, folder, tmp_path):
        key = write_key(tmp_path / "key")
        (folder / SIGNATURE).unlink()
        command = ["ssh-keygen", "-Y", "sign", "-f", key, "-n", NAMESPACE]
        subprocess.run([*command, folder / "certificate.json"], check=True, capture_output=True)
        assert (
            sign((folder / "certificate.json").read_bytes(), KEY)
            == (folder / SIGNATURE).read_bytes()
        )
