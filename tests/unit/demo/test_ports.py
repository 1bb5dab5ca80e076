"""Ports that are picked for programs that start later."""

import socket

import pytest

from demo import processes
from demo.processes import unused_ports


def test_the_system_gives_none_of_them_to_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first, last = map(int, file.read().split())
    picked = unused_ports(3)
    assert len(set(picked)) == 3
    assert not set(picked) & set(range(first, last + 1))
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", picked[0]))
        monkeypatch.setattr(processes, "_NEVER_GIVEN", picked)
        assert sorted(unused_ports(2)) == sorted(picked[1:])
