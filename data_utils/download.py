"""Files from the network and out of archives; each appears whole or not at all."""

import contextlib
import fnmatch
import gzip
import hashlib
import os
import posixpath
import re
import shutil
import sys
import tarfile
import time
import zipfile
import zlib
from pathlib import Path

import requests
import urllib3
from tqdm import tqdm

from data_utils.atomic_files import PARTIAL_SUFFIX, replacing

TRIES = 5
FIRST_WAIT = 2.0  # seconds before the second try; twice as long before each further one
TIMEOUT = (15.0, 60.0)  # seconds to connect; seconds without a byte
BLOCK_SIZE = 1 << 20

_HEADERS = {
    "User-Agent": "Mozilla/5.0 (compatible; data_utils)",  # some hosts refuse those of Python's libraries
    "Accept-Encoding": "identity",  # the bytes of the file, which a Range counts
}
_WORTH_ANOTHER_TRY = {408, 429, 500, 502, 503, 504}
_CORRUPT = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
)


class _Interrupted(Exception):
    """A try failed in a way that the next one may not."""


class _Refused(Exception):
    """A try failed in a way that every other would, too."""


def fetch(url, path, sha256=None):
    """Downloads a file, which appears under its name when it is complete, and shows the progress on stderr.

    A download that breaks off goes on where it stopped, in this call or a later one: what has arrived is kept in
    `path` + ".partial". A server that cannot go on is asked for the whole file again.

    Args:
        url: the address.
        path: the file to write; its folder is made when missing.
        sha256: hex digest of the whole file, None if it is not known.

    Raises:
        ValueError: the file has another digest; it is deleted.
        OSError: the file cannot be downloaded after `TRIES` tries, or not be written.
    """
    path = Path(path)
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _download(url, partial, path.name)
    except (_Interrupted, _Refused) as error:
        raise OSError(
            f"Expected to be able to download {path.name} ({error}); it can also be put into {path.parent} by hand. "
            f"Received: url={url}"
        ) from error
    except OSError as error:
        raise OSError(f"Expected to be able to write {partial} ({error.strerror}). Received: url={url}") from error
    if sha256 is not None:
        _check_sha256(partial, sha256, url)
    os.replace(partial, path)


def extract(archive, members, folder):
    """Takes files out of an archive; they appear together, when the whole archive has been read without an error.

    Args:
        archive: a .zip, .tgz or .tar.gz file.
        members: name in the archive -> name below `folder`. A name whose value is None keeps its path below `folder`
            and may be a pattern with *, ? and [] (`*` also matches "/"), which takes every file that it matches.
        folder: where the files go; made when missing.

    Raises:
        ValueError: no such kind of archive, a member is missing, a file would be outside the folder, or the archive is
            damaged.
        OSError: the archive cannot be read or the files cannot be written.
    """
    wanted = {posixpath.normpath(name): new_name for name, new_name in members.items()}
    missing = set(wanted)
    partials = {}
    try:
        with contextlib.ExitStack() as stack:
            for name, file in _files_in(Path(archive)):
                key = _wanted_key(name, wanted)
                if key is None:
                    continue
                target = _below(folder, name if wanted[key] is None else wanted[key], archive)
                if target not in partials:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    partials[target] = stack.enter_context(replacing(target))
                with file() as source, open(partials[target], "wb") as copy:
                    shutil.copyfileobj(source, copy, BLOCK_SIZE)
                missing.discard(key)
            if missing:
                raise ValueError(f"Expected {', '.join(sorted(missing))} in the archive. Received: archive={archive}")
    except _CORRUPT as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"Expected an archive that is whole ({reason}). Received: archive={archive}") from error


def _download(url, partial, name):
    for number in range(TRIES):
        if number:
            time.sleep(FIRST_WAIT * 2 ** (number - 1))
        try:
            return _try_to_download(url, partial, name)
        except _Interrupted as error:
            failure = error
    raise failure


def _try_to_download(url, partial, name):
    have = partial.stat().st_size if partial.exists() else 0
    headers = {**_HEADERS, "Range": f"bytes={have}-"} if have else _HEADERS
    try:
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            if response.status_code == requests.codes.range_not_satisfiable and have:
                return _check_complete(response, partial, have)
            _check_status(response)
            have = _resumed_at(response, partial, have)
            length = response.headers.get("Content-Length", "")
            total = have + int(length) if length.isdigit() else None
            size = _write(response, partial, have, total, name)
    except requests.Timeout as error:
        raise _Interrupted("no answer in time") from error
    except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
        raise _Interrupted("no connection") from error
    except urllib3.exceptions.HTTPError as error:
        raise _Interrupted("the connection broke off") from error
    except requests.RequestException as error:
        raise _Refused(str(error)) from error
    if total is not None and size < total:  # not every version of urllib3 looks
        raise _Interrupted("the connection broke off")


def _check_complete(response, partial, have):
    """Accepts a partial file that lacks nothing; one that is too long is deleted."""
    if response.headers.get("Content-Range", "").replace(" ", "") != f"bytes*/{have}":
        partial.unlink()
        raise _Interrupted("the server has a shorter file than what is left of an earlier download")


def _check_status(response):
    if response.status_code in (requests.codes.ok, requests.codes.partial_content):
        return
    kind = _Interrupted if response.status_code in _WORTH_ANOTHER_TRY else _Refused
    raise kind(f"the server answers {response.status_code} {response.reason}")


def _resumed_at(response, partial, have):
    """Returns the position in the file of the first byte that the server sends: `have`, or 0 for the whole file."""
    if response.status_code == requests.codes.ok:
        return 0
    start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    if start is None or int(start[1]) != have:
        partial.unlink(missing_ok=True)
        raise _Interrupted("the server sends another part of the file than the one asked for")
    return have


def _write(response, partial, have, total, name):
    """Appends what the server sends to the first `have` bytes of `partial`; returns how many bytes it has then."""
    bar = tqdm(total=total, initial=have, desc=name, unit="B", unit_scale=True, mininterval=1.0, file=sys.stderr)
    with bar, open(partial, "ab" if have else "wb") as file:
        for block in response.raw.stream(BLOCK_SIZE, decode_content=False):
            file.write(block)
            bar.update(len(block))
        return file.tell()


def _check_sha256(partial, expected, url):
    with open(partial, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != expected:
        partial.unlink()
        raise ValueError(f"Expected a file with the sha256 {expected} at {url}. Received: sha256={digest}")


def _files_in(archive):
    """Yields the normal path of every file in an archive and a function that opens it, valid until the next one."""
    if archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                if not info.is_dir():
                    yield posixpath.normpath(info.filename), lambda info=info: opened.open(info)
    elif archive.name.endswith((".tgz", ".tar.gz")):
        with gzip.open(archive) as stored:
            with tarfile.open(fileobj=stored, mode="r:") as opened:
                for info in opened:
                    if info.isfile():
                        yield posixpath.normpath(info.name), lambda info=info: opened.extractfile(info)
            while stored.read(BLOCK_SIZE):  # up to the checksum at the end
                pass
    else:
        raise ValueError(f"Expected a .zip, .tgz or .tar.gz file. Received: archive={archive}")


def _wanted_key(name, wanted):
    if name in wanted:
        return name
    return next((key for key, new in wanted.items() if new is None and fnmatch.fnmatchcase(name, key)), None)


def _below(folder, name, archive):
    name = posixpath.normpath(name)
    if name.startswith(("/", "../")) or name in (".", ".."):
        raise ValueError(f"Expected names inside the folder, not {name!r}. Received: archive={archive}")
    return Path(folder, name)
