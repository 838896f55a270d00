"""A worker's environment is built from empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.environ import network_environment, worker_environment


def test_a_worker_gets_these_variables_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "PYTHONPATH", "LD_PRELOAD", "HOME", "SSH_AUTH_SOCK", "PYTHONSTARTUP", "LANG"):
        monkeypatch.setenv(name, "of the caller")
    for name in [*network_environment()]:
        monkeypatch.delenv(name)
    assert worker_environment(Path("/private"), Path("/venv/bin/python")) == {
        "PATH": "/venv/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/private/home",
        "TMPDIR": "/private/tmp",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def test_what_the_network_of_the_machine_needs_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/corporate.pem")
    env = worker_environment(Path("/private"), Path("/venv/bin/python"))
    assert env["HTTPS_PROXY"] == "http://proxy:3128"
    assert env["SSL_CERT_FILE"] == "/etc/corporate.pem"
    # a proxy that cannot be reached would only be in the way
    env = worker_environment(Path("/private"), Path("/venv/bin/python"), proxies=False)
    assert "HTTPS_PROXY" not in env
    assert env["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
    assert env["SSL_CERT_FILE"] == "/etc/corporate.pem"


def test_what_a_worker_trusts_can_be_said_and_no_proxy_stands_before_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*network_environment()]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SSL_CERT_DIR", "/etc/corporate")
    trusted = Path("/private/all.pem")
    env = worker_environment(Path("/private"), Path("/venv/bin/python"), direct="127.0.0.1", trusted=trusted)
    assert {name for name, value in env.items() if value == "/private/all.pem"} == {
        "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    }  # fmt: skip
    # the file has what is in the folder; and where there is no proxy, nothing is kept from it
    assert not {"SSL_CERT_DIR", "no_proxy", "NO_PROXY"} & env.keys()
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    env = worker_environment(Path("/private"), Path("/venv/bin/python"), direct="127.0.0.1")
    assert (env["no_proxy"], env["NO_PROXY"]) == ("127.0.0.1", "127.0.0.1")
    monkeypatch.setenv("no_proxy", ".local")
    env = worker_environment(Path("/private"), Path("/venv/bin/python"), direct="127.0.0.1")
    assert (env["no_proxy"], env["NO_PROXY"]) == (".local,127.0.0.1", ".local,127.0.0.1")


def test_only_proxies_and_certificates_are_taken_over() -> None:
    given = {
        "http_proxy": "http://a:1", "HTTPS_PROXY": "http://b:2", "all_proxy": "socks5://c:3", "no_proxy": "x@y,.local",
        "SSL_CERT_FILE": "/f", "SSL_CERT_DIR": "/d", "REQUESTS_CA_BUNDLE": "/r", "CURL_CA_BUNDLE": "/c",
    }  # fmt: skip
    others = {"HOME": "/home", "API_KEY": "x", "FTP_PROXY": "http://d:4", "Http_Proxy": "http://e:5", "ALL_PROXY": ""}
    assert network_environment({**given, **others}) == given


@pytest.mark.parametrize(
    ("proxy", "clean"),
    [
        ("http://proxy:3128", "http://proxy:3128"),
        ("http://user:password@proxy:3128", "http://proxy:3128"),
        ("http://user:password@proxy:3128/path", "http://proxy:3128/path"),
        ("http://user@proxy:3128", "http://proxy:3128"),
        ("user:password@proxy:3128", "proxy:3128"),
        ("proxy:3128", "proxy:3128"),
        ("socks5h://user:password@[::1]:1080", "socks5h://[::1]:1080"),
        ("http://user:p@ssword@proxy:3128", "http://proxy:3128"),
        ("http://user:pass/word@proxy:3128", "http://proxy:3128"),
        ("http://user:pass//word@proxy:3128", "http://proxy:3128"),
        ("http://user:pass?word#@proxy:3128", "http://proxy:3128"),
        ("http://user:password@[::1", "http://[::1"),
        ("//user:password@proxy", "proxy"),
    ],
)
def test_a_proxys_user_name_and_password_stay_with_the_caller(proxy: str, clean: str) -> None:
    assert network_environment({"https_proxy": proxy}) == {"https_proxy": clean}
