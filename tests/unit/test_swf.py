"""Logs in the Standard Workload Format: what is kept, and what is refused with its place."""

import bz2
import gzip
import lzma
import tracemalloc
from pathlib import Path

import pytest

from edgeyard.errors import InvalidInput
from edgeyard.training.worlds.swf import no_processors, read_swf
from tests.builders.logs import swf_line, write_swf

GOOD = swf_line(1, 0, 5)


def test_jobs_are_kept_by_the_stated_rules(tmp_path: Path) -> None:
    log = read_swf(
        write_swf(
            tmp_path / "log.swf",
            [
                "; a comment between jobs",
                swf_line(3, 30, 5, 2, allocated=4, requested=60),
                swf_line(1, 10, 0),
                "",
                swf_line(2, 20, -1, 3, allocated=1),
                swf_line(4, 40, 7.5, -1),
            ],
            procs=128,
        )
    )
    assert log.job.tolist() == [2, 3, 4]
    assert log.submit.tolist() == [20, 30, 40]
    assert log.run.tolist() == [10, 5, 7.5]
    assert log.requested.tolist() == [10, 60, 7.5]
    assert log.procs.tolist() == [3, 4, 1]
    assert log.user.tolist() == [7, 7, 7]
    assert log.line.tolist() == [6, 3, 7]
    assert log.max_procs == 128
    assert log.notes == (
        "1 job with run time 0 left out",
        "1 job with a negative run time counted as 10 s",
        "1 job without processors counted as one processor",
        "2 jobs without a requested time taken to request the run time",
    )


def test_values_that_the_standard_calls_unknown_have_a_rule_and_are_counted(tmp_path: Path) -> None:
    """An archived log with one job whose submission is not known is replayed without it."""
    lines = [
        swf_line(1, 10, 5, requested=9),
        swf_line(2, -1, 5, requested=9),
        swf_line(-1, 20, 5, requested=9),
        swf_line(-1, 21, 5, requested=9),
        swf_line(-1, -1, 5, requested=9),
        swf_line(3, 30, 0, requested=9).replace(" 7 ", " -1 "),
        swf_line(4, 40, 5, requested=9).replace(" 7 ", " -1 "),
        " ".join(["5", "50", *["-1"] * 16]),
    ]
    log = read_swf(write_swf(tmp_path / "log.swf", lines))
    assert log.job.tolist() == [1, 4, 5]
    assert log.user.tolist() == [7, -1, -1]
    assert log.notes == (
        "3 jobs without a job number left out",
        "1 job without a submit time left out",
        "1 job with run time 0 left out",
        "1 job with a negative run time counted as 10 s",
        "1 job without processors counted as one processor",
        "1 job without a requested time taken to request the run time",
        "2 jobs without a user counted as one user's",
    )


@pytest.mark.parametrize("packed", [False, True])
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path, packed: bool) -> None:
    text = "; MaxProcs: 64\n".encode("utf-8-sig") + GOOD.encode() + b"\n"
    path = tmp_path / "log.swf"
    path.write_bytes(gzip.compress(text) if packed else text)
    assert (read_swf(path).max_procs, read_swf(path).line.tolist()) == (64, [2])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lzma.compress(b"; MaxProcs: 4"), r"log.swf: is compressed by xz \(accepted: gzip or none"),
        (bz2.compress(b"; MaxProcs: 4"), "is compressed by bzip2"),
        (gzip.compress(lzma.compress(b"; MaxProcs: 4")), "is compressed by xz"),
        (gzip.compress(gzip.compress(b"; MaxProcs: 4")), "is compressed by gzip twice"),
        (lzma.compress(b"; MaxProcs: 4", lzma.FORMAT_ALONE), "is compressed by lzma"),
        (b"PK\x03\x04" + bytes(40), "is a ZIP archive"),
        ("; MaxProcs: 4".encode("utf-16"), r"is UTF-16 text: .*byte order mark \(accepted: UTF-8"),
    ],
    ids=["xz", "bzip2", "xz in gzip", "gzip in gzip", "lzma", "zip", "utf-16"],
)
def test_a_file_that_is_no_such_text_is_named_as_what_it_is(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "log.swf"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        read_swf(path)


@pytest.mark.parametrize("packed", [False, True])
def test_one_gigantic_line_is_named_and_not_read(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "log.swf"
    with gzip.open(path, "wb", compresslevel=1) if packed else path.open("wb") as file:
        file.write(f"{GOOD}\n".encode())
        for _ in range(32):
            file.write(b"1 " * (1 << 19))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match=r"log.swf, line 2: is longer than 1,048,576 char"):
            read_swf(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_the_content_decides_whether_a_log_is_compressed(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_bytes(gzip.compress((swf_line(1, 0, 5) + "\n").encode()))
    shares: list[float] = []
    assert len(read_swf(path, shares.append)) == 1
    assert shares


def test_nodes_stand_for_processors_where_the_header_has_no_others(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(f"; MaxNodes: 16\n; MaxProcs: -1\n{swf_line(1, 0, 5)}\n")
    assert read_swf(path).max_procs == 16


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (f"; MaxProcs: {10**30}", r"log.swf, line 2: MaxProcs is '10{30}' .*1 to 2147483647"),
        ("; MaxNodes: many", r"line 2: MaxNodes is 'many' \(accepted: a whole number from 1"),
        ("; MaxProcs: -1", r"line 2: MaxProcs is '-1' .*, or --procs with a number\)"),
        ("; MaxNodes: x\n; MaxProcs:", r"line 3: MaxProcs is '' "),
        ("; MaxProcs: " + "9" * 99, r"line 2: MaxProcs is '9{40}\.\.\.' "),
    ],
)
def test_a_machine_size_that_cannot_be_used_is_named_by_its_line(
    tmp_path: Path, header: str, message: str
) -> None:
    path = tmp_path / "log.swf"
    path.write_text(f"; Version: 2.2\n{header}\n{swf_line(1, 0, 5)}\n")
    log = read_swf(path)
    assert log.max_procs is None
    with pytest.raises(InvalidInput, match=message):
        no_processors(log)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (swf_line(2, -5, 5), r"line 3: field 2 \(submit time\) is -5 \(accepted: 0 or more, or -1"),
        (swf_line(2, "nan", 5), r"line 3: field 2 \(submit time\) is nan .*a finite number"),
        (swf_line(2, 0, "NaN"), r"line 3: field 4 \(run time\) is nan"),
        (swf_line(2, 0, "inf"), r"line 3: field 4 \(run time\) is inf"),
        (swf_line(2, 0, 5, requested="nan"), r"line 3: field 9 \(requested time\) is nan"),
        (swf_line(2, 1e15, 5), r"line 3: field 2 \(submit time\) is 1e\+15 .*at most 1000000000"),
        (swf_line(2, 0, "5s"), r"line 3: field 4 \(run time\) is '5s' \(accepted: a number\)"),
        (swf_line(2, 0, "x" * 99), r"field 4 \(run time\) is 'x{40}\.\.\.'"),
        (swf_line(2, 0, 5, 2**31), r"field 8 \(requested processors\) is 2147483648 .*2147483647"),
        (swf_line(-2, 0, 5), r"line 3: field 1 \(job number\) is -2"),
        (GOOD, r"line 3: field 1 \(job number\) 1 occurs twice: on line 2 too"),
        ("2 0 -1 5", r"line 3: has 4 fields \(accepted: 18 fields\)"),
        (GOOD + " 9", r"line 3: has 19 fields"),
        (GOOD.replace("1 0", "1.5 0"), r"line 3: field 1 \(job number\) is 1.5 .*a whole number"),
        ("job,submit,run", r"line 3: has 1 field "),
        (swf_line(2, "1_0", 5), r"line 3: field 2 \(submit time\) is '1_0' \(accepted: a number"),
    ],
)
def test_what_is_wrong_is_named_by_line_and_field(tmp_path: Path, line: str, message: str) -> None:
    path = write_swf(tmp_path / "log.swf", [GOOD, line, swf_line(9, 9, 9)])
    with pytest.raises(InvalidInput, match=message):
        read_swf(path)


def test_a_log_without_jobs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="the file has no jobs"):
        read_swf(write_swf(tmp_path / "log.swf", []))
    with pytest.raises(InvalidInput, match="every job has run time 0, or no job number"):
        read_swf(write_swf(tmp_path / "log.swf", [swf_line(1, 0, 0)]))


@pytest.mark.parametrize("kept", [30, -4])
def test_a_cut_archive_is_refused(tmp_path: Path, kept: int) -> None:
    whole = gzip.compress("\n".join(swf_line(job, job, 5) for job in range(1000)).encode())
    path = tmp_path / "log.swf.gz"
    path.write_bytes(whole[:kept])
    with pytest.raises(InvalidInput, match="the compressed file is damaged or incomplete"):
        read_swf(path)


def test_a_line_that_is_cut_at_the_end_of_the_file_is_named(tmp_path: Path) -> None:
    path = write_swf(tmp_path / "log.swf", [GOOD])
    path.write_text(path.read_text() + swf_line(2, 0, 5)[:20])
    with pytest.raises(InvalidInput, match="line 3: has"):
        read_swf(path)


def test_long_logs_name_the_right_line_too(tmp_path: Path) -> None:
    lines = [swf_line(job, job, 5) for job in range(1, 60_001)]
    lines[55_000] = swf_line(55_001, 3, "x")
    path = write_swf(tmp_path / "log.swf", lines)
    with pytest.raises(InvalidInput, match="line 55002: field 4"):
        read_swf(path)
