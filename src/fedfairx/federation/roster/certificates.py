"""TLS certificates: the federation's own authority, one certificate for the hub, one for each member.

They decide who may connect to the hub and under which name it may write. Messages are trusted by their
own signature (`envelope.py`), which does not depend on certificates.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedfairx.errors import StateError
from fedfairx.util.files import require_private, write_atomically, write_private
from fedfairx.util.foreign_files import read_file

WARNED = 30  # days before a certificate expires, from which on there are warnings


@dataclass(frozen=True)
class Identity:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def issue(self, name: str, *, days: int, hosts: Sequence[str] = (), email: str = "") -> Identity:
        """Issue a certificate for a new key: for a server at `hosts`, or for the client `email`."""
        names: list[x509.GeneralName] = [_host(host) for host in hosts]
        names += [x509.RFC822Name(email)] if email else []
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]  # a server of a hub of several is a client of the others
        usages += [ExtendedKeyUsageOID.SERVER_AUTH] if hosts else []
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_name(name), self.certificate.subject, key.public_key(), days)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
            )
        )
        return Identity(builder.sign(self.key, hashes.SHA256()), key)

    def renew(self, certificate: x509.Certificate, *, days: int) -> x509.Certificate:
        """Issue a certificate again, for the same key and names, from now on.

        The authority may renew its own: what it has issued stays valid.
        """
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except (InvalidSignature, ValueError, TypeError):
            raise StateError("the certificate to renew was not issued by this authority") from None
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        builder = _builder(certificate.subject, self.certificate.subject, key, days)
        for each in certificate.extensions:
            builder = builder.add_extension(each.value, critical=each.critical)
        return builder.sign(self.key, hashes.SHA256())

    def write(self, certificate: str | os.PathLike[str], key: str | os.PathLike[str]) -> None:
        """Write the certificate and the key into new files; the key's has mode 0600."""
        write_certificate(certificate, self.certificate)
        write_private(key, self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    @classmethod
    def read(cls, certificate: str | os.PathLike[str], key: str | os.PathLike[str]) -> Identity:
        """Read what `write` wrote; `StateError` if the pair does not match or others may read the key."""
        require_private(key)
        try:
            loaded = x509.load_pem_x509_certificate(read_file(certificate))
            private = load_pem_private_key(read_file(key), password=None)
        except (ValueError, TypeError):
            raise StateError(f"{certificate} and {key} must be a certificate and its key as PEM") from None
        if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != loaded.public_key():
            raise StateError(f"{key} is not the key of {certificate}")
        return cls(loaded, private)


def new_authority(name: str, *, days: int) -> Identity:
    """Make a self-signed certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(subject, subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Identity(builder.sign(key, hashes.SHA256()), key)


def write_certificate(path: str | os.PathLike[str], certificate: x509.Certificate) -> None:
    """Write or replace a certificate's file."""
    write_atomically(path, certificate.public_bytes(Encoding.PEM))


def expires(certificate: str | os.PathLike[str]) -> datetime:
    """When a certificate's file is no longer valid."""
    return read_certificate(certificate).not_valid_after_utc


def read_certificate(path: str | os.PathLike[str]) -> x509.Certificate:
    """Read a certificate's file, which holds no secret."""
    try:
        return x509.load_pem_x509_certificate(read_file(path))
    except ValueError:
        raise StateError(f"{path} must be a certificate as PEM") from None


def identity_of(agent: str, federation: str) -> str:
    """The email address in a member's certificate, by which the hub knows it."""
    return f"{agent}@{federation}"


def check_certificate(certificate: x509.Certificate, authority: x509.Certificate, *, email: str = "") -> None:
    """Raise `StateError` if a certificate is not valid now, or not for `email`."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        raise StateError("it is not signed by this federation's authority") from None
    now = datetime.now(UTC)
    for each, whose in ((certificate, "it"), (authority, "the authority")):
        if now < each.not_valid_before_utc:
            raise StateError(f"{whose} is not valid before {each.not_valid_before_utc:%Y-%m-%d}")
        if now > each.not_valid_after_utc:
            raise StateError(f"{whose} was valid until {each.not_valid_after_utc:%Y-%m-%d}")
    if email:
        require_email(certificate, email)


def require_email(certificate: x509.Certificate, email: str) -> None:
    """Refuse a certificate that is not for the client `email`."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if email not in names.get_values_for_type(x509.RFC822Name):
        raise StateError(f"it must be for {email}")


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
