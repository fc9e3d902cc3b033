"""Files of a SuperLink and its SuperNodes: the app, a secret, and a key for each node."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fedfairx.util.files import write_private

APP = Path(__file__).with_name("app")


def write_app(folder: Path) -> None:
    """Copy the Flower app into a folder for `flwr run`."""
    shutil.copytree(APP, folder, ignore=shutil.ignore_patterns("__pycache__", "*.fab"))


def make_hub(folder: Path) -> None:
    """Write the app and the secret between SuperLink and SuperExec into the hub's folder."""
    write_app(folder / "app")
    write_private(folder / "superexec.secret", secrets.token_hex(32).encode())


def make_node(folder: Path, public: Path) -> None:
    """Write a SuperNode's private key into a member's folder and its public key into the hub's, in OpenSSH's
    format, the only one that Flower reads."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_private(folder / "node.key", key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public.parent.mkdir(exist_ok=True)
    public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")
