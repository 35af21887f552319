"""Where a SQLite file lies: what the systems tell of their mounts, and what is refused."""

import os
import random
from pathlib import Path

import pytest

from perdure.errors import StoreRefused
from perdure.model.clock import SystemClock
from perdure.model.ids import Ids
from perdure.store import open_store
from perdure.store.base import Store
from perdure.store.sqlite import places

LINUX = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
40 27 0:40 / /srv rw,relatime shared:7 master:2 - nfs4 server:/export rw,vers=4.2,addr=10.0.0.1
41 40 0:41 / /srv/local rw,relatime - xfs /dev/vdb rw
42 27 0:42 / /mnt/with\\040space rw - cifs //server/share rw
43 27 0:43 / /home/me/far rw,nosuid,nodev - fuse.sshfs me@far:/ rw,user_id=1000
44 27 0:44 / /mnt/c rw,noatime - 9p drvfs rw,dirsync,aname=drvfs
45 27 0:45 / /both rw - nfs server:/a rw
46 27 0:46 / /both rw - tmpfs tmpfs rw
47 27 0:47 / /fuse rw - fuseblk /dev/sdb1 rw
48 27 0:48 / /mnt/a\x0cb rw - fuse.ceph-fuse ceph-fuse rw,user_id=0
"""

MAC = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
devfs on /dev (devfs, local, nobrowse)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse, protect, root data)
//me@server/share on /Volumes/share (smbfs, nodev, nosuid, mounted by me)
server:/export on /Volumes/a (b) on c (nfs, nodev, nosuid, mounted by me)
"""


@pytest.mark.parametrize(
    ("path", "kind", "refused"),
    [
        ("/var/lib/one.db", "ext4", False),
        ("/srv/one.db", "nfs4", True),
        ("/srvx/one.db", "ext4", False),
        ("/srv/local/one.db", "xfs", False),
        ("/mnt/with space/one.db", "cifs", True),
        ("/home/me/far/away/one.db", "fuse.sshfs", True),
        ("/home/me/one.db", "ext4", False),
        ("/mnt/c/one.db", "9p", True),
        ("/both/one.db", "tmpfs", False),  # the last mount at a place is what one sees there
        ("/fuse/one.db", "fuseblk", False),
        ("/mnt/a\x0cb/one.db", "fuse.ceph-fuse", True),
    ],
)
def test_what_linux_tells(path: str, kind: str, refused: bool) -> None:
    found = places.mount_of(path, places.parse_mountinfo(LINUX))
    assert found is not None
    assert (found.kind, found.is_network) == (kind, refused)


@pytest.mark.parametrize(
    ("path", "kind", "refused"),
    [
        ("/Users/me/one.db", "apfs", False),
        ("/Volumes/share/one.db", "smbfs", True),
        ("/Volumes/a (b) on c/one.db", "nfs", True),
    ],
)
def test_what_a_mac_tells(path: str, kind: str, refused: bool) -> None:
    found = places.mount_of(path, places.parse_mount(MAC))
    assert found is not None
    assert (found.kind, found.is_network) == (kind, refused)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (r"C:\data\one.db", None),
        (r"\\server\share\one.db", r"\\server\share"),
        (r"\\?\UNC\server\share\one.db", r"\\server\share"),
        (r"\\?\C:\data\one.db", None),
        ("//server/share/one.db", r"\\server\share"),
    ],
)
def test_shares_of_windows(path: str, place: str | None) -> None:
    found = places._unc(path)
    assert (found and found.place) == place


@pytest.mark.parametrize(
    "text", ["", "nonsense", "1 2 3", "- ext4", "a on b", " on / (", "1 2 3 4 / - "]
)
def test_what_cannot_be_read_says_nothing(text: str) -> None:
    for mount in [*places.parse_mountinfo(text), *places.parse_mount(text)]:
        assert not mount.is_network


def test_this_machine_tells_of_its_own_mounts(tmp_path: Path) -> None:
    found = places.mount_of(str(tmp_path.resolve()), places._mounts())
    assert found is not None and found.kind and not found.is_network
    places.refuse_network(str(tmp_path.resolve() / "one.db"))


async def test_a_file_there_is_refused_with_the_reason_unless_at_own_risk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = [places.Mount(os.path.realpath(tmp_path), "nfs4", True)]  # noqa: ASYNC240
    monkeypatch.setattr(places, "_mounts", lambda: mounts)
    clock = SystemClock()
    url = f"sqlite:///{tmp_path}/one.db"

    def made(options: str) -> Store:
        return open_store(
            url + options,
            namespace=None,
            clock=clock,
            ids=Ids(clock, random.Random(1)),
            lifecycle=True,
        )

    with pytest.raises(StoreRefused, match=r"network file system \(nfs4 at .*Postgres"):
        await made("").open()
    assert os.listdir(tmp_path) == []
    store = made("?network=1")
    await store.open()
    await store.close()
    with pytest.raises(StoreRefused, match="network is 0 or 1"):
        made("?network=maybe")


def test_a_system_that_does_not_tell_is_believed_to_be_local(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(places, "_mountinfo", str(tmp_path / "missing"))
    assert places._mounts() == []
    places.refuse_network("/srv/one.db")
