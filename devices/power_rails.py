"""The power sensors that a Linux board shows in ``/sys``, and which one measures the whole board.

A *rail* is one measured supply. Three kinds are read:

- hwmon ``powerN_input`` or ``powerN_average``, microwatts;
- hwmon ``currN_input`` times ``inN_input``, milliamperes and millivolts, where the chip states no
  power: the INA3221 of NVIDIA's Jetson boards;
- counters of energy, microjoules: hwmon ``energyN_input`` and RAPL's ``energy_uj``, which begins
  again at 0 after ``max_energy_range_uj``.

A board's rails contain one another: its input feeds all others, and a processor's package feeds its
cores. So rails are never added up, and `choose` takes the input of the board, or none.

Sources: kernel documentation hwmon/sysfs-interface, hwmon/ina3221, power/powercap/powercap.
Imported on boards too: only the standard library, Python 3.10.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

POWER_PATTERNS = (
    "sys/class/hwmon/hwmon*/name",
    "sys/class/hwmon/hwmon*/power*_input",
    "sys/class/hwmon/hwmon*/power*_average",
    "sys/class/hwmon/hwmon*/power*_label",
    "sys/class/hwmon/hwmon*/curr*_input",
    "sys/class/hwmon/hwmon*/curr*_label",
    "sys/class/hwmon/hwmon*/in*_input",
    "sys/class/hwmon/hwmon*/in*_label",
)
"""Files of sensors that state a power, below the root."""

COUNTER_PATTERNS = (
    "sys/class/hwmon/hwmon*/energy*_input",
    "sys/class/hwmon/hwmon*/energy*_label",
    "sys/class/powercap/intel-rapl:*/name",
    "sys/class/powercap/intel-rapl:*/energy_uj",
    "sys/class/powercap/intel-rapl:*/max_energy_range_uj",
)
"""Files of counters, below the root; ``name`` of a chip in hwmon is above."""

POWER, PRODUCT, COUNTER = "power", "current times voltage", "energy counter"

BOARD, PROCESSOR, PART = "board", "processor", "part"
"""What a rail measures: the whole board, the processor alone, or a part that the lab has named."""

OF_A_PART = frozenset({PROCESSOR, PART})
"""What is less than the board, and so is not stated as the board's."""

_INPUT_LABELS = ("VDD_IN", "POM_5V_IN", "VIN", "PWR_IN", "DC_IN", "BOARD_IN", "TOTAL", "INPUT")
"""Names that vendors give the input of a whole board: Jetson TX2, Xavier NX, Orin NX and Nano
(VDD_IN), Jetson Nano (POM_5V_IN), and what other device trees use."""

_MONITORS = ("ina", "ltc", "adm", "lm25", "max34", "tps", "pac19", "isl")
"""First letters of chips that do nothing but monitor a supply; drivers of GPUs, disks, batteries
and temperatures have power files, too, which state the power of that device alone."""

_INA3221_CHANNELS = 3
"""``curr4`` of an INA3221 is a sum, and ``in4`` to ``in7`` are voltages at its shunts."""

MAX_POWER_W = 10_000.0
"""A larger reading is a fault of the sensor: no board draws more."""

_MAX_NAMES = 200

Listing = Mapping[str, str]
"""Text of sensors' files by path below the root, without "/" first; "": it could not be read."""


@dataclass(frozen=True)
class Rail:
    """One measured supply.

    Attributes:
        sensor: Name of the chip, or ``rapl``.
        label: Its name on this sensor, e.g. ``VDD_IN``; ``power1`` where it has none.
        kind: `POWER`, `PRODUCT` or `COUNTER`.
        files: Below the root: one, or of a product the current's and the voltage's.
        max_uj: Of a counter: the value after which it begins again at 0; None: it does not.
        is_labelled: Whether the board names it.
    """

    sensor: str
    label: str
    kind: str
    files: Tuple[str, ...]
    max_uj: Optional[int] = None
    is_labelled: bool = True

    @property
    def name(self) -> str:
        """Sensor and label, as messages and boards files have it."""
        return f"{self.sensor}/{self.label}"

    def watts(self, listing: Listing) -> Optional[float]:
        """Return the power of a rail that states one; None: it is a counter, or not readable."""
        values = [_whole(listing.get(each, "")) for each in self.files]
        if self.kind == COUNTER or None in values:
            return None
        numbers = [each for each in values if each is not None]
        return numbers[0] / 1e6 if self.kind == POWER else numbers[0] * numbers[1] / 1e6

    def joules(self, listing: Listing) -> Optional[float]:
        """Return what a counter states; None: the rail has none, or it is not readable."""
        value = _whole(listing.get(self.files[0], ""))
        return value / 1e6 if self.kind == COUNTER and value is not None else None


@dataclass(frozen=True)
class Choice:
    """The rail that stands for a board.

    Attributes:
        rail: None: there is none.
        scope: `BOARD`, `PROCESSOR` or `PART`; "" without a rail.
        reason: Why this rail, or why none, in words; "": the board has no sensors.
    """

    rail: Optional[Rail] = None
    scope: str = ""
    reason: str = ""


def read_listing(
    root: Path, patterns: Sequence[str] = (*POWER_PATTERNS, *COUNTER_PATTERNS)
) -> Dict[str, str]:
    """Read the sensors' files of this machine once.

    Args:
        root: Where ``sys`` is; tests use a fake tree.
        patterns: Of the files.
    """
    found = {}
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            found[str(path.relative_to(root))] = read_text(path)
    return found


def read_text(path: Path) -> str:
    """Return the text of a sensor's file; "" where it can't be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def rails_of(listing: Listing) -> List[Rail]:
    """Return all rails of a board; those of one chip in the order of their numbers."""
    found: List[Rail] = []
    for folder in sorted({path.rpartition("/")[0] for path in listing}):
        files = {path.rpartition("/")[2]: path for path in listing if _folder(path) == folder}
        chip = listing.get(f"{folder}/name", "").strip()
        if "energy_uj" in files:
            max_uj = _whole(listing.get(f"{folder}/max_energy_range_uj", ""))
            found.append(
                Rail("rapl", chip or Path(folder).name, COUNTER, (files["energy_uj"],), max_uj)
            )
        elif "/hwmon/" in folder:
            found += _rails_of_chip(listing, files, chip or Path(folder).name)
    return found


def choose(rails: Sequence[Rail], named: str = "") -> Choice:
    """Return the rail that is the board's input.

    In this order: the rail that the lab has named; the one whose label is that of a board's input;
    an ACPI power meter; RAPL's domain of the whole platform (``psys``); the only rail of all chips
    that monitor supplies; the only processor package, which is not the whole board. Two rails of
    one rank are no choice.

    Args:
        rails: As `rails_of` returns them.
        named: Label, or sensor and label, as the boards file has it; "": by rule.
    """
    if named:
        fitting = [each for each in rails if named in (each.label, each.name)]
        scope = PART if fitting and not _is_input(fitting[0]) else BOARD
        missing = f"the boards file names the rail {named!r}, which this board does not have"
        doubled = f"the boards file names the rail {named!r}, which this board has several times"
        if rail := _only(fitting):
            return Choice(rail, scope, "named in the boards file")
        return Choice(reason=(doubled if fitting else missing) + _known(rails))
    monitors = [each for each in rails if each.sensor.startswith(_MONITORS)]
    packages = [each for each in rails if re.fullmatch(r"package-\d+", each.label)]
    ranks = (
        ([each for each in rails if _is_input(each)], BOARD, "its label is that of an input"),
        ([each for each in rails if each.sensor == "power_meter"], BOARD, "ACPI power meter"),
        ([each for each in rails if each.label == "psys"], BOARD, "RAPL's whole platform"),
        (
            [] if any(each.is_labelled for each in monitors) else monitors,
            BOARD,
            "the only rail of all power monitors",
        ),
        (packages, PROCESSOR, "the only processor package: not the whole board"),
    )
    for fitting, scope, reason in ranks:
        if rail := _only(fitting):
            return Choice(rail, scope, reason)
        if fitting:
            break
    if not rails:
        return Choice()
    return Choice(
        reason="no single rail is known to be the board's input; the boards file may name one "
        f"(energy_rail){_known(rails)}"
    )


def _is_input(rail: Rail) -> bool:
    return rail.label.upper().replace(" ", "_") in _INPUT_LABELS


def _only(rails: Sequence[Rail]) -> Optional[Rail]:
    """Return the rail that all of these are; of one that is counted and sampled, the counter."""
    kinds = [each.kind for each in rails]
    if len({each.name for each in rails}) != 1 or len({*kinds}) != len(kinds):
        return None
    return min(rails, key=lambda each: (COUNTER, POWER, PRODUCT).index(each.kind))


def _known(rails: Sequence[Rail]) -> str:
    names = ", ".join(dict.fromkeys(each.name for each in rails))
    return f"; it has {names[:_MAX_NAMES] or 'no rails'}"


def _rails_of_chip(listing: Listing, files: Mapping[str, str], chip: str) -> List[Rail]:
    found: Dict[Tuple[str, int], Rail] = {}

    def label(kinds: Sequence[str], number: int) -> str:
        texts = (listing.get(files.get(f"{kind}{number}_label", ""), "") for kind in kinds)
        return next((each.strip() for each in texts if each.strip()), "")

    def add(kind: str, number: int, paths: Tuple[str, ...], own: str, default: str) -> None:
        found.setdefault(
            (COUNTER if kind == COUNTER else POWER, number),
            Rail(chip, own or default, kind, paths, is_labelled=bool(own)),
        )

    for name in ("power{}_input", "power{}_average"):
        for number in _numbers(files, name):
            own = label(("power", "in", "curr"), number)
            add(POWER, number, (files[name.format(number)],), own, f"power{number}")
    for number in _numbers(files, "curr{}_input"):
        if f"in{number}_input" in files and (chip != "ina3221" or number <= _INA3221_CHANNELS):
            paths = (files[f"curr{number}_input"], files[f"in{number}_input"])
            add(PRODUCT, number, paths, label(("in", "curr"), number), f"curr{number}")
    for number in _numbers(files, "energy{}_input"):
        own = label(("energy", "power", "in"), number)
        default = f"power{number}" if f"power{number}_input" in files else f"energy{number}"
        add(COUNTER, number, (files[f"energy{number}_input"],), own, default)
    return list(found.values())


def _numbers(files: Mapping[str, str], name: str) -> List[int]:
    pattern = re.compile(re.escape(name).replace(r"\{\}", r"(\d+)"))
    return sorted(int(match[1]) for each in files if (match := pattern.fullmatch(each)))


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _whole(text: str) -> Optional[int]:
    text = text.strip()
    digits = text[1:] if text.startswith("-") else text
    return int(text[:20]) if digits.isascii() and digits.isdigit() else None
