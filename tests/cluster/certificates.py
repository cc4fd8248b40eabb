"""A small certificate authority for tests, made with the ``cryptography`` package that moto brings along."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import Any, NamedTuple


class Made(NamedTuple):
    """PEM texts."""

    chain: str
    key: str


def make(name: str, issuer: tuple[Any, Any] | None = None, *, host: str | None = None) -> tuple[Made, tuple[Any, Any]]:
    """A certificate, and what is needed to issue others with it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0] if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=issuer is None)
    )
    if host is not None:
        names: list[Any] = [x509.DNSName(host)]
        if host.replace(".", "").isdigit():
            names = [x509.IPAddress(ipaddress.ip_address(host))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    signed = builder.sign(issuer[1] if issuer else key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    made = Made(signed.public_bytes(serialization.Encoding.PEM).decode(), private.decode())
    return made, (subject, key)


def server_context(folder: Path, made: Made, *, client_ca: str | None = None) -> ssl.SSLContext:
    """For a server with that certificate; with ``client_ca`` it demands one of its clients."""
    path = folder / "server.pem"
    path.write_text(made.chain + made.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    if client_ca:
        context.load_verify_locations(cadata=client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
