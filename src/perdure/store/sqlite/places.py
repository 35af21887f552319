"""Where the file lies: not on a network file system, where neither locks nor the log's shared memory can be relied on.

The system is asked which mounts there are; the one that holds the file says of what kind it is. A system that does not
tell is believed to be local.
"""

import re
import subprocess
import sys
from collections.abc import Iterable
from typing import Final, NamedTuple

from perdure.errors import StoreRefused

_platform: str = sys.platform
_mountinfo = "/proc/self/mountinfo"
_answer_s = 5.0

# As the kernel, or FUSE behind a dot, names them.
_network_kinds: Final = frozenset(
    """
    9p acfs afpfs afs beegfs blobfuse blobfuse2 ceph ceph-fuse cifs coda curlftpfs davfs davfs2 fhgfs gcsfuse gfs2
    glusterfs goofys gpfs gvfsd-fuse juicefs lustre moosefs mfs ncp ncpfs nfs nfs3 nfs4 nfsd ocfs2 openafs orangefs
    panfs prl_fs pvfs2 quobyte rclone s3fs seaweedfs smb2 smb3 smbfs smbnetfs sshfs vboxsf vmhgfs vmhgfs-fuse webdav
    weka wekafs
    """.split()
)
_escaped = re.compile(r"\\([0-7]{3})")
# `server:/export on /Volumes/share (nfs, nodev, nosuid)`
_mounted_on = re.compile(r"^.+? on (?P<place>/.*) \((?P<kind>[^,)]+)[^)]*\)$")


class Mount(NamedTuple):
    place: str
    kind: str
    is_network: bool


def refuse_network(path: str) -> None:
    """Raises StoreRefused if this real path is on a network file system."""
    mount = _holding(path)
    if mount is not None and mount.is_network:
        raise StoreRefused(
            f"{path} is on a network file system ({mount.kind} at {mount.place}): its locks and shared memory do not "
            "work as SQLite needs them, and the file would be damaged. Put it on a local disk, or use Postgres"
        )


def file_system(path: str) -> str:
    """Of what kind the file system is that holds this real path; "" if the system does not tell."""
    mount = _holding(path)
    return "" if mount is None else mount.kind


def is_network(path: str) -> bool:
    """Whether it is known to be one that is reached over a network."""
    mount = _holding(path)
    return mount is not None and mount.is_network


def _holding(path: str) -> Mount | None:
    return _unc(path) if _platform == "win32" else mount_of(path, _mounts())


def mount_of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """The mount that holds a path: the deepest, and of several at one place the last, which covers the others."""
    found: Mount | None = None
    for one in mounts:
        if _holds(one.place, path) and (found is None or len(one.place) >= len(found.place)):
            found = one
    return found


def _holds(place: str, path: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")


def _mounts() -> list[Mount]:
    try:
        if _platform == "linux":
            with open(_mountinfo, encoding="utf-8", errors="surrogateescape") as file:
                return parse_mountinfo(file.read())
        command = ["/sbin/mount"]
        told = subprocess.run(command, capture_output=True, timeout=_answer_s, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_mount(told.stdout.decode(errors="surrogateescape"))


def parse_mountinfo(text: str) -> list[Mount]:
    """Linux: `36 35 98:0 / /mnt rw,noatime master:1 - ext4 /dev/root rw`, with spaces as octal numbers."""
    found = []
    for line in text.split("\n"):  # a place may hold what else ends a line
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) > 4 and kinds[0]:
            place = _escaped.sub(lambda octal: chr(int(octal[1], 8)), fields[4])
            found.append(Mount(place, kinds[0], _is_network(kinds[0])))
    return found


def parse_mount(text: str) -> list[Mount]:
    """A Mac and the BSDs: what `mount` prints."""
    found = []
    for line in text.splitlines():
        told = _mounted_on.match(line)
        if told is not None:
            kind = told["kind"].strip()
            found.append(Mount(told["place"], kind, _is_network(kind)))
    return found


def _is_network(kind: str) -> bool:
    return kind.lower().removeprefix("fuse.").removeprefix("macfuse_") in _network_kinds


def _unc(path: str) -> Mount | None:
    """Windows: `\\\\server\\share\\file`, also as `\\\\?\\UNC\\server\\share\\file`."""
    plain = path.replace("/", "\\")
    if plain.upper().startswith("\\\\?\\UNC\\"):
        plain = "\\\\" + plain[8:]
    if not plain.startswith("\\\\") or plain.startswith(("\\\\?\\", "\\\\.\\")):
        return None
    return Mount("\\".join(plain.split("\\")[:4]), "a share", True)
