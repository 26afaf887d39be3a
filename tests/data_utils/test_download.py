"""Downloads from a server on this host that misbehaves in every way they must survive, and archives likewise."""

import gzip
import hashlib
import http.server
import io
import random
import re
import tarfile
import threading
import time
import zipfile

import pytest
import requests

import data_utils.download
from data_utils.download import TRIES, extract, fetch

CONTENT = random.Random(1).randbytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class _Handler(http.server.BaseHTTPRequestHandler):
    """Notes the request and answers it with the next of the server's answers; the last one stays."""

    def do_GET(self):
        self.server.requests.append(self.headers)
        answers = self.server.answers
        (answers.pop(0) if len(answers) > 1 else answers[0])(self)

    def log_message(self, *args):
        pass


def status(code):
    def answer(handler):
        handler.send_response(code)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def serve(content=CONTENT, ranges=True, send=None, shift=0, length=True):
    """Returns an answer with the content, which sends `send` bytes and then drops the connection."""

    def answer(handler):
        asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", "")) if ranges else None
        start = int(asked[1]) + shift if asked else 0
        if asked and start >= len(content):
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(content)}")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        handler.send_response(206 if asked else 200)
        if asked:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if length:
            handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        handler.wfile.write(content[start:][:send])
        handler.close_connection = True

    return answer


@pytest.fixture
def server(monkeypatch):
    """A server with `answers` (one after the other), `requests` (the headers of each) and `url`."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(data_utils.download, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(data_utils.download, "TIMEOUT", (5.0, 5.0))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.answers, server.requests = [serve()], []
    server.url = f"http://127.0.0.1:{server.server_port}/a.zip"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(10)
    assert not thread.is_alive()


def ranges(server):
    return [headers.get("Range") for headers in server.requests]


def test_a_file_and_its_progress(server, tmp_path, capsys):
    fetch(server.url, tmp_path / "new" / "a.zip", SHA256)
    assert (tmp_path / "new" / "a.zip").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.zip"]
    assert ranges(server) == [None]
    assert "python" not in server.requests[0]["User-Agent"].lower()
    assert server.requests[0]["Accept-Encoding"] == "identity"
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "a.zip: 100%" in captured.err
    assert "300k/300k" in captured.err


@pytest.mark.parametrize("urllib3_looks", [True, False])
@pytest.mark.parametrize("first", [1, 1000, len(CONTENT) - 1])
def test_a_dropped_download_goes_on(server, tmp_path, monkeypatch, first, urllib3_looks):
    real_get = requests.get

    def get(*args, **kwargs):
        response = real_get(*args, **kwargs)
        response.raw.enforce_content_length = urllib3_looks
        return response

    monkeypatch.setattr(requests, "get", get)
    server.answers = [serve(send=first), serve()]
    fetch(server.url, tmp_path / "a.zip", SHA256)
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert ranges(server) == [None, f"bytes={first}-"]


def test_several_drops_in_a_row(server, tmp_path, capsys):
    server.answers = [serve(send=100_000), serve(send=100_000), status(503), serve()]
    fetch(server.url, tmp_path / "a.zip", SHA256)
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=100000-", "bytes=200000-", "bytes=200000-"]
    assert "67%" in capsys.readouterr().err  # it starts where the earlier tries ended


def test_a_server_that_knows_no_ranges_sends_it_all_again(server, tmp_path):
    server.answers = [serve(ranges=False, send=1000), serve(ranges=False)]
    fetch(server.url, tmp_path / "a.zip")
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=1000-"]


def test_a_server_that_sends_another_range_is_asked_for_all(server, tmp_path):
    server.answers = [serve(send=1000), serve(shift=7), serve()]
    fetch(server.url, tmp_path / "a.zip")
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=1000-", None]


def test_a_file_without_a_length(server, tmp_path):
    server.answers = [serve(length=False)]
    fetch(server.url, tmp_path / "a.zip", SHA256)
    assert (tmp_path / "a.zip").read_bytes() == CONTENT


@pytest.mark.parametrize("left", [1, 5000, len(CONTENT)])
def test_what_an_earlier_call_left_is_used(server, tmp_path, left):
    (tmp_path / "a.zip.partial").write_bytes(CONTENT[:left])
    fetch(server.url, tmp_path / "a.zip", SHA256)
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert ranges(server) == [f"bytes={left}-"]
    assert not (tmp_path / "a.zip.partial").exists()


def test_more_than_the_file_was_left(server, tmp_path):
    (tmp_path / "a.zip.partial").write_bytes(CONTENT + b"x")
    fetch(server.url, tmp_path / "a.zip", SHA256)
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert ranges(server) == [f"bytes={len(CONTENT) + 1}-", None]


def test_errors_of_the_server_are_waited_out(server, tmp_path, monkeypatch):
    waits = []
    monkeypatch.setattr(data_utils.download.time, "sleep", waits.append)
    server.answers = [status(500), status(502), status(429), serve()]
    fetch(server.url, tmp_path / "a.zip", SHA256)
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert waits == [0.001, 0.002, 0.004]


@pytest.mark.parametrize("code", [404, 403, 410, 204])
def test_a_refusal_is_final(server, tmp_path, code):
    server.answers = [status(code)]
    with pytest.raises(OSError) as error:
        fetch(server.url, tmp_path / "a.zip")
    assert str(error.value).startswith(f"Expected to be able to download a.zip (the server answers {code} ")
    assert str(error.value).endswith(f"; it can also be put into {tmp_path} by hand. Received: url={server.url}")
    assert len(server.requests) == 1
    assert list(tmp_path.iterdir()) == []


def test_when_every_try_fails_what_has_arrived_stays(server, tmp_path):
    server.answers = [serve(send=1000)]
    with pytest.raises(OSError, match=rf"\(the connection broke off\); it can also be put into {tmp_path} by hand"):
        fetch(server.url, tmp_path / "a.zip")
    assert ranges(server) == [None, *(f"bytes={tries * 1000}-" for tries in range(1, TRIES))]
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip.partial"]
    assert (tmp_path / "a.zip.partial").read_bytes() == CONTENT[:5000]


def test_no_server(tmp_path, server):
    server.shutdown()
    server.server_close()
    with pytest.raises(OSError) as error:
        fetch(server.url, tmp_path / "a.zip")
    assert str(error.value) == (
        f"Expected to be able to download a.zip (no connection); it can also be put into {tmp_path} by hand. "
        f"Received: url={server.url}"
    )


def test_a_server_that_falls_silent(server, tmp_path, monkeypatch):
    monkeypatch.setattr(data_utils.download, "TIMEOUT", (0.2, 0.2))
    over, start = threading.Event(), time.monotonic()
    server.answers = [lambda handler: over.wait(10), serve()]
    fetch(server.url, tmp_path / "a.zip", SHA256)
    over.set()
    assert time.monotonic() - start < 4
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert len(server.requests) == 2


def test_a_server_that_falls_silent_half_way(server, tmp_path, monkeypatch):
    monkeypatch.setattr(data_utils.download, "TIMEOUT", (0.2, 0.2))
    over = threading.Event()

    def stops(handler):
        serve(send=1000)(handler)
        handler.wfile.flush()
        over.wait(10)

    server.answers = [stops, serve()]
    fetch(server.url, tmp_path / "a.zip", SHA256)
    over.set()
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert len(server.requests) == 2


def test_no_address(tmp_path):
    with pytest.raises(OSError, match=r"Expected to be able to download a\.zip \(.*\); .* Received: url=no address$"):
        fetch("no address", tmp_path / "a.zip")


def test_another_checksum(server, tmp_path):
    server.answers = [serve(content=CONTENT[1:])]
    with pytest.raises(ValueError) as error:
        fetch(server.url, tmp_path / "a.zip", SHA256)
    received = hashlib.sha256(CONTENT[1:]).hexdigest()
    assert str(error.value) == f"Expected a file with the sha256 {SHA256} at {server.url}. Received: sha256={received}"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to(server, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match=r"Expected to be able to write .*/file/a\.zip\.partial \(.*\)\. Received: url="):
        fetch(server.url, tmp_path / "file" / "a.zip")
    assert server.requests == []


# --- extract

FILES = {"top/a.txt": b"A" * 5000, "top/b.txt": b"B", "top/deep/c.txt": b"C", "d.txt": b"D"}


def archive(path, files=None, prefix=""):
    """Writes an archive of {name: bytes}, of the kind that the path names."""
    files = FILES if files is None else files
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
            opened.mkdir("top")
            for name, content in files.items():
                opened.writestr(prefix + name, content)
        return path
    with tarfile.open(path, "w:gz") as opened:
        folder = tarfile.TarInfo(f"{prefix}top")
        folder.type = tarfile.DIRTYPE
        opened.addfile(folder)
        for name, content in files.items():
            info = tarfile.TarInfo(prefix + name)
            info.size = len(content)
            opened.addfile(info, io.BytesIO(content))
    return path


def below(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(params=["a.zip", "a.tgz", "a.tar.gz"])
def path(request, tmp_path):
    """Where an archive of each kind goes."""
    return tmp_path / request.param


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.mark.parametrize("prefix", ["", "./"])
def test_members_by_name(path, out, prefix):
    extract(archive(path, prefix=prefix), {"top/a.txt": "x.txt", "./d.txt": "new/y.txt"}, out)
    assert below(out) == {"x.txt": FILES["top/a.txt"], "new/y.txt": b"D"}


def test_members_by_pattern(path, out):
    extract(archive(path), {"top/*": None, "d.txt": None}, out)
    assert below(out) == FILES


def test_files_that_are_there_are_replaced(path, out):
    out.mkdir()
    (out / "d.txt").write_bytes(b"old")
    extract(archive(path), {"d.txt": "d.txt"}, out)
    assert below(out) == {"d.txt": b"D"}


@pytest.mark.parametrize("missing", ["top/z.txt", "top", "[z]*", "*.txt"])
def test_a_missing_member(path, out, missing):
    new_name = "new.txt" if missing == "*.txt" else None  # with a new name, it is no pattern
    with pytest.raises(ValueError) as error:
        extract(archive(path), {"d.txt": "d.txt", missing: new_name}, out)
    assert str(error.value) == f"Expected {missing} in the archive. Received: archive={path}"
    assert below(out) == {}


@pytest.mark.parametrize("name", ["../x.txt", "top/../../x.txt", "/x.txt", ".."])
def test_no_file_goes_outside_the_folder(path, tmp_path, out, name):
    archive(path, {"d.txt": b"D", name: b"evil"})
    for members in ({"*": None}, {"d.txt": name}):
        with pytest.raises(ValueError, match=rf"Expected names inside the folder, not '.*'\. Received: archive={path}"):
            extract(path, members, out)
    assert [file for file in below(tmp_path) if file != path.name] == []


def test_links_are_no_files(tmp_path, out):
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as opened:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo("link")
            info.type, info.linkname = kind, "/etc/passwd"
            opened.addfile(info)
    with pytest.raises(ValueError, match="Expected link in the archive"):
        extract(tmp_path / "a.tgz", {"link": "link"}, out)


def test_a_file_that_is_twice_in_an_archive_is_the_last_one(tmp_path, out):
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as opened:
        for content in (b"first one", b"last"):
            info = tarfile.TarInfo("a.txt")
            info.size = len(content)
            opened.addfile(info, io.BytesIO(content))
    extract(tmp_path / "a.tgz", {"a.txt": "a.txt"}, out)
    assert below(out) == {"a.txt": b"last"}


def test_an_archive_that_is_cut_off(path, out):
    content = random.Random(2).randbytes(20_000)
    whole = archive(path, {"a.txt": content, "b.txt": content}).read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 9, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=rf"Received: archive={path}$"):
            extract(path, {"*.txt": None}, out)
        assert not out.exists() or below(out) == {}


def test_an_archive_that_is_damaged(path, out):
    content = random.Random(3).randbytes(20_000)
    whole = bytearray(archive(path, {"a.txt": content, "b.txt": content}).read_bytes())
    whole[len(whole) // 3] ^= 0xFF
    path.write_bytes(whole)
    with pytest.raises(ValueError, match=rf"Expected an archive that is whole \(.*\)\. Received: archive={path}$"):
        extract(path, {"*.txt": None}, out)
    assert below(out) == {}


def test_something_else_than_an_archive(path, out):
    path.write_bytes(b"<html>Not found</html>" * 100)
    with pytest.raises(ValueError, match=rf"Expected an archive that is whole \(.*\)\. Received: archive={path}$"):
        extract(path, {"d.txt": "d.txt"}, out)


def test_a_compressed_file_that_holds_no_tar(tmp_path, out):
    (tmp_path / "a.tgz").write_bytes(gzip.compress(b"text " * 1000))
    with pytest.raises(ValueError, match=r"Expected an archive that is whole \(.*\)\. Received: archive="):
        extract(tmp_path / "a.tgz", {"d.txt": "d.txt"}, out)


def test_another_kind_of_archive(tmp_path, out):
    with pytest.raises(ValueError, match=r"Expected a \.zip, \.tgz or \.tar\.gz file\. Received: archive=.*a\.rar"):
        extract(tmp_path / "a.rar", {"d.txt": "d.txt"}, out)
