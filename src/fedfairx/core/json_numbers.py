"""Matrices of numbers from JSON, without a Python object for each number.

A batch of decisions has thousands of numbers, and making and freeing objects takes most of the time in which
they are read. What is read here is bit for bit what `json.loads` gives. Text that is unusual is not read, and
is left to a whole parser, which also says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedfairx.lanes.decorators import compiled, stage
from fedfairx.util.arrays import Array

END, MINUS, PLUS, POINT, COMMA, OPEN, CLOSE, ZERO, NINE = 0, *map(ord, "-+.,[]09")
LOWER_E, UPPER_E, SPACE, TAB, LINE, RETURN = map(ord, "eE \t\n\r")
FAILED = -1
REFUSED = (FAILED, 0, 0)
EXACT = 22  # powers of ten up to this are exact as floats
POWERS = np.array([float(10**power) for power in range(EXACT + 1)])
MOST_DIGITS = 19  # so many fit into 64 bits
SPLIT = 2.0**27 + 1.0
DOUBT = 2.0**-40  # relative, and much more than the error of a correction


def read_matrices(texts: Sequence[bytes]) -> Array | None:
    """The (B, K, d) array of B matrices, each of K rows of d numbers; None for anything unusual.

    >>> read_matrices([b"[[0.5, 1], [2e-3, -4]]"])
    array([[[ 5.e-01,  1.e+00],
            [ 2.e-03, -4.e+00]]])
    >>> read_matrices([b"[[0.5, 1], [2]]"])
    """
    text = np.frombuffer(b"".join((*texts, b"\0")), np.uint8)
    numbers = np.empty(text.size // 2 + 1)
    count, rows, columns = _read(text, numbers)
    if not texts or count != len(texts):
        return None
    return numbers[: count * rows * columns].reshape(count, rows, columns)


@compiled
def _read(text: np.ndarray, numbers: Array) -> tuple[int, int, int]:
    """Read matrices that follow one another: how many, and their rows and columns; or `REFUSED`.

    `text` ends with 0, which nothing else may be.
    """
    place, count, matrices, rows, columns = 0, 0, 0, 0, 0
    while True:
        place = _next(text, place)
        if text[place] == END:
            break
        if text[place] != OPEN:
            return REFUSED
        row = 0
        while text[place] != CLOSE:
            place = _next(text, place + 1)
            if text[place] != OPEN:
                return REFUSED
            column = 0
            while text[place] != CLOSE:
                place, number = _number(text, _next(text, place + 1))
                if place == FAILED:
                    return REFUSED
                numbers[count] = number
                count, column, place = count + 1, column + 1, _next(text, place)
                if text[place] != COMMA and text[place] != CLOSE:
                    return REFUSED
            if count > column and column != columns:
                return REFUSED
            columns, row, place = column, row + 1, _next(text, place + 1)
            if text[place] != COMMA and text[place] != CLOSE:
                return REFUSED
        if matrices > 0 and row != rows:
            return REFUSED
        rows, matrices, place = row, matrices + 1, place + 1
    return (matrices, rows, columns) if place == text.size - 1 else REFUSED


@stage
def _next(text: np.ndarray, place: int) -> int:
    """The place of the next character that is no space."""
    while text[place] == SPACE or text[place] == LINE or text[place] == TAB or text[place] == RETURN:
        place += 1
    return place


@stage
def _number(text: np.ndarray, place: int) -> tuple[int, float]:
    """The place after the number that begins here, and the number; `FAILED` if it is none, or unusual."""
    sign = 1.0
    if text[place] == MINUS:
        sign, place = -1.0, place + 1
    begin = place
    digits = np.uint64(0)
    while ZERO <= text[place] <= NINE:
        digits = digits * np.uint64(10) + np.uint64(int(text[place]) - ZERO)
        place += 1
    whole, below = place - begin, 0  # digits before and after the point
    if whole == 0 or (whole > 1 and text[begin] == ZERO):
        return FAILED, 0.0
    if text[place] == POINT:
        point = place
        place += 1
        while ZERO <= text[place] <= NINE:
            digits = digits * np.uint64(10) + np.uint64(int(text[place]) - ZERO)
            place += 1
        below = place - point - 1
        if below == 0:
            return FAILED, 0.0
    if whole + below > MOST_DIGITS:
        leading = begin
        while text[leading] == ZERO or text[leading] == POINT:
            leading += 1
        if place - leading > MOST_DIGITS:
            return FAILED, 0.0
    power = 0
    if text[place] == LOWER_E or text[place] == UPPER_E:
        place += 1
        down = text[place] == MINUS
        if down or text[place] == PLUS:
            place += 1
        begin = place
        while ZERO <= text[place] <= NINE and power <= EXACT:
            power, place = 10 * power + int(text[place]) - ZERO, place + 1
        if place == begin:
            return FAILED, 0.0
        power = -power if down else power
    power -= below
    if abs(power) > EXACT:
        return FAILED, 0.0
    if digits <= np.uint64(2**53):
        value = float(digits)
        return place, sign * (value / POWERS[-power] if power < 0 else value * POWERS[power])
    if power > 0:
        return FAILED, 0.0
    value = _divided(digits, POWERS[-power])
    return (place, sign * value) if value > 0.0 else (FAILED, 0.0)


@stage
def _divided(digits: np.uint64, power: float) -> float:
    """digits / power, rounded once; 0 where it is too close to the middle of two floats to tell."""
    upper = float(digits >> np.uint64(32)) * 2.0**32
    lower = float(digits & np.uint64(2**32 - 1))
    near = upper + lower
    quotient = near / power
    # What the division left: near - quotient · power, by Dekker's exact product, and what `near` lacks.
    a, b = SPLIT * quotient, SPLIT * power
    high_a, high_b = a - (a - quotient), b - (b - power)
    low_a, low_b = quotient - high_a, power - high_b
    product = quotient * power
    error = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
    rest = ((near - product) - error) + (lower - (near - upper))
    correction = rest / power
    least, most = quotient + correction * (1.0 - DOUBT), quotient + correction * (1.0 + DOUBT)
    return least if least == most else 0.0
