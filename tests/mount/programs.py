"""What programs do with a file system, checked one by one: `programs.py DIRECTORY ROUNDS`, as root."""

import errno
import fcntl
import mmap
import os
import random
import signal
import sqlite3
import stat
import sys
import threading


def sqlite_keeps_its_rows(at, rounds):
    for journal in ("DELETE", "WAL", "TRUNCATE"):
        path = os.path.join(at, f"{journal}.db")
        base = sqlite3.connect(path)
        base.execute(f"PRAGMA journal_mode={journal}")
        base.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, writer INTEGER, value BLOB)")
        base.commit()
        base.close()

        def write(writer):
            mine = sqlite3.connect(path, timeout=60)
            chance = random.Random(writer)
            for turn in range(20 * rounds):
                with mine:
                    rows = [(writer, chance.randbytes(chance.randrange(8000))) for _ in range(5)]
                    mine.executemany("INSERT INTO t (writer, value) VALUES (?, ?)", rows)
                    if turn % 5 == 0:
                        mine.execute("DELETE FROM t WHERE writer = ? AND id % 7 = 0", (writer,))
            mine.close()

        writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        base = sqlite3.connect(path)
        assert base.execute("PRAGMA integrity_check").fetchall() == [("ok",)], journal
        assert base.execute("SELECT count(DISTINCT writer) FROM t").fetchone() == (3,)
        base.execute("VACUUM")
        assert base.execute("PRAGMA integrity_check").fetchall() == [("ok",)], journal
        base.close()


def mapped_pages_and_calls_see_each_other(at, _):
    path = os.path.join(at, "mapped")
    with open(path, "w+b") as file:
        file.truncate(100_000)
        with mmap.mmap(file.fileno(), 100_000) as pages:
            pages[50_000:50_005] = b"pages"
            assert os.pread(file.fileno(), 5, 50_000) == b"pages"
            os.pwrite(file.fileno(), b"calls", 70_000)
            assert pages[70_000:70_005] == b"calls"
            pages.flush()
            os.ftruncate(file.fileno(), 60_000)
            os.ftruncate(file.fileno(), 100_000)
            assert os.pread(file.fileno(), 5, 70_000) == bytes(5)
    with open(path, "rb") as file:
        assert file.read()[50_000:50_005] == b"pages"


def locks_exclude_other_processes(at, _):
    path = os.path.join(at, "locked")
    with open(path, "w") as file:
        for lock in (fcntl.flock, fcntl.lockf):
            lock(file, fcntl.LOCK_EX)
            child = os.fork()
            if child == 0:
                try:
                    with open(path, "r+") as other:
                        lock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os._exit(1)
                except BlockingIOError:
                    os._exit(0)
            assert os.waitpid(child, 0)[1] == 0, f"{lock} let two in"
            lock(file, fcntl.LOCK_UN)


def as_nobody(call):
    """Whether `call` raises nothing as another user; else its errno."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            call()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def permissions_hold_and_privileges_go(at, _):
    path = os.path.join(at, "program")
    with open(path, "wb") as file:
        file.write(b"x" * 10)

    def append():
        with open(path, "ab") as file:
            file.write(b"y")

    os.chmod(path, 0o644)
    assert as_nobody(append) == errno.EACCES
    assert as_nobody(lambda: os.unlink(path)) == errno.EACCES
    for change in (append, lambda: os.truncate(path, 3)):
        os.chmod(path, 0o6777)
        assert as_nobody(change) == 0
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o777, oct(os.stat(path).st_mode)
    os.chmod(path, 0o6777)
    append()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o6777, "root's writes keep them"
    os.chown(path, 5, 5)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o777
    sticky = os.path.join(at, "sticky")
    os.mkdir(sticky)
    os.chmod(sticky, 0o1777)
    theirs = os.path.join(sticky, "ours")
    open(theirs, "w").close()
    assert as_nobody(lambda: os.unlink(theirs)) == errno.EPERM
    assert as_nobody(lambda: open(os.path.join(sticky, "theirs"), "w").close()) == 0
    made = os.stat(os.path.join(sticky, "theirs"))
    assert (made.st_uid, made.st_gid) == (65534, 65534)


def set_user_programs_run_as_their_owner(at, _):
    path = os.path.join(at, "id")
    with open("/usr/bin/id", "rb") as source, open(path, "wb") as copy:
        copy.write(source.read())
    os.chmod(path, 0o4755)
    read, write = os.pipe()

    def run():
        os.dup2(write, 1)
        os.execv(path, [path, "-u"])

    assert as_nobody(run) == 0
    assert os.read(read, 100) == b"0\n"
    os.close(read)
    os.close(write)


def a_removed_directory_is_left_in_peace(at, _):
    gone = os.path.join(at, "gone")
    os.mkdir(gone)
    here = os.getcwd()
    os.chdir(gone)
    try:
        os.rmdir(gone)
        assert os.listdir(".") == []
        assert os.stat(".").st_nlink == 0
        try:
            open("new", "w")
            raise AssertionError("a removed directory took a row")
        except FileNotFoundError:
            pass
    finally:
        os.chdir(here)


def unlinked_files_are_served_while_open(at, rounds):
    path = os.path.join(at, "unlinked")
    free = os.statvfs(at).f_bfree
    with open(path, "w+b") as file:
        os.unlink(path)
        content = random.Random(1).randbytes(1_000_000 * rounds)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        assert file.read() == content
        assert os.fstat(file.fileno()).st_nlink == 0
        assert os.statvfs(at).f_bfree < free
    # The kernel lets go a moment after the last close.
    os.sync()


def direct_and_cached_calls_agree(at, rounds):
    path = os.path.join(at, "direct")
    block = mmap.mmap(-1, 65_536)
    direct = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    cached = os.open(path, os.O_RDWR)
    chance = random.Random(2)
    expected = bytearray(1 << 20)
    os.ftruncate(cached, len(expected))
    for _ in range(60 * rounds):
        offset = chance.randrange(16) * 65_536
        content = chance.randbytes(65_536)
        if chance.random() < 0.5:
            block[:] = content
            os.pwritev(direct, [block], offset)
        else:
            os.pwrite(cached, content, offset)
        expected[offset : offset + 65_536] = content
        offset = chance.randrange(16) * 65_536
        os.preadv(direct, [block], offset)
        assert block[:] == expected[offset : offset + 65_536]
        assert os.pread(cached, 65_536, offset) == expected[offset : offset + 65_536]
    os.close(direct)
    os.close(cached)


def copies_inside_are_alike(at, _):
    source, copy = os.path.join(at, "source"), os.path.join(at, "copy")
    content = random.Random(3).randbytes(3_000_000)
    with open(source, "wb") as file:
        file.write(content)
    with open(source, "rb") as reader, open(copy, "w+b") as writer:
        done = 0
        while done < len(content):
            done += os.copy_file_range(reader.fileno(), writer.fileno(), len(content) - done)
        writer.seek(0)
        assert writer.read() == content


def many_names_in_one_directory(at, rounds):
    wide = os.path.join(at, "wide")
    os.mkdir(wide)
    count = 2000 * rounds
    for number in range(count):
        os.close(os.open(os.path.join(wide, f"{number}"), os.O_CREAT | os.O_EXCL))
    assert sorted(map(int, os.listdir(wide))) == list(range(count))
    for number in range(0, count, 2):
        os.rename(os.path.join(wide, f"{number}"), os.path.join(wide, f"{number + 1}"))
    assert len(os.listdir(wide)) == count // 2
    for entry in os.scandir(wide):
        os.unlink(entry.path)
    os.rmdir(wide)


def writers_at_the_end_do_not_meet(at, rounds):
    path = os.path.join(at, "log")
    children = []
    for writer in range(4):
        child = os.fork()
        if child == 0:
            log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            for turn in range(100 * rounds):
                os.write(log, f"{writer} {turn}\n".encode())
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    with open(path) as log:
        lines = [tuple(map(int, line.split())) for line in log]
    for writer in range(4):
        assert [turn for who, turn in lines if who == writer] == list(range(100 * rounds))


def main():
    at, rounds = os.path.join(sys.argv[1], "programs"), int(sys.argv[2])
    os.makedirs(at)
    for above in (sys.argv[1], os.path.dirname(sys.argv[1])):
        os.chmod(above, 0o755)
    # Whatever hangs is a failure.
    signal.alarm(60 * rounds)
    checks = [check for name, check in globals().items() if callable(check) and getattr(check, "__code__", None)]
    checks = [check for check in checks if check.__code__.co_argcount == 2]
    for check in checks:
        check(at, rounds)
    print(f"programs: {len(checks)} checks, {rounds} rounds: all right")


main()
