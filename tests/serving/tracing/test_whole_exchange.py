"""An exchange ends when its time is over, whatever the server does in between; and one in time is left alone."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
import requests

from failsoft.health.clock import SystemClock
from failsoft.serving.tracing.whole_exchange import WholeExchange
from tests.dripping import dripping
from tests.serving.tracing.receiver import receiving


def session(within_s: float) -> requests.Session:
    made = requests.Session()
    made.trust_env = False
    for scheme in ("http://", "https://"):
        made.mount(scheme, WholeExchange(within_s))
    return made


def test_one_that_drips_is_ended_and_the_next_one_goes_on() -> None:
    with dripping() as there, receiving() as well, session(1.0) as http:
        with pytest.raises(requests.exceptions.ReadTimeout, match="within 1 s"):
            http.post(f"http://127.0.0.1:{there.port}/", data=b"x", timeout=30.0)
        for _ in range(3):
            assert http.post(well.url, data=b"", timeout=30.0).status_code == 200


def test_a_request_that_is_given_less_time_ends_then() -> None:
    with dripping() as there, session(600.0) as http, pytest.raises(requests.exceptions.ReadTimeout, match=r"0\.3 s"):
        http.post(f"http://127.0.0.1:{there.port}/", data=b"x", timeout=0.3)


def test_what_fails_in_time_fails_in_its_own_words() -> None:
    with dripping() as there:
        port = there.port
    with session(60.0) as http, pytest.raises(requests.exceptions.ConnectionError) as found:
        http.post(f"http://127.0.0.1:{port}/", data=b"x", timeout=30.0)
    assert not isinstance(found.value, requests.exceptions.ReadTimeout)


def test_one_that_drips_behind_tls_is_ended_too(tmp_path: Path) -> None:
    certificate = certified(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    began_s = SystemClock().monotonic_s()
    with dripping(tls) as there, session(3.0) as http, pytest.raises(requests.exceptions.ReadTimeout):
        http.post(f"https://127.0.0.1:{there.port}/", data=b"x", timeout=20.0, verify=str(certificate))
    assert SystemClock().monotonic_s() - began_s < 20.0
    assert there.asked == 1, "it has spoken by TLS"


def certified(folder: Path) -> Path:
    """A key and a certificate that it signed itself, in one file."""
    x509 = pytest.importorskip("cryptography.x509", reason="makes a certificate: pip install cryptography")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "collector")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "both.pem"
    plain = serialization.NoEncryption()
    written = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(written + made.public_bytes(serialization.Encoding.PEM))
    return path
