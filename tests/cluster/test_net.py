"""The transport's contract on corosync: three members send at the same time, and deliver the same in the same order (tests/contract/net_member.c)."""
import subprocess

from harness import eq

ALL = (1, 2, 3)


def contract(c):
    c.wait_primary(ALL, 30, synced=3)
    members = [subprocess.Popen(['nsenter', '-t', str(c.init_pid(n)), '-m', '-n', '-u', '-p', '--', str(c.bin / 'net_member'), 'corosync', '3', '500'],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) for n in ALL]
    lines = [m.communicate(timeout=60)[0].split() for m in members]
    eq([m.returncode for m in members], [0, 0, 0], lines)
    eq([line[-1] for line in lines], ['ok'] * 3)
    eq(len({(line[3], line[5]) for line in lines}), 1, lines)
    eq(lines[0][3], '1500')


TESTS = [(contract, 90)]
