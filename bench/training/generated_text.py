"""Generates an English-like text: the same for the same seed on every machine."""

import random

FIRST = ("b", "ch", "d", "f", "g", "l", "m", "n", "p", "r", "s", "t", "tr", "v")
SYLLABLES = [first + vowel + last for first in FIRST for vowel in "aeiou" for last in ("", "n", "r", "st")]
WORDS = 400
SUCCESSORS = 6  # words that often follow a word


def pick(source, values):
    # random() has the same values in all releases of Python; choice() has not.
    return values[int(source.random() * len(values))]


def frequent(source, values):
    """Returns an early value more often than a late one, about as in Zipf's law."""
    return values[int(len(values) ** source.random()) - 1]


def words_of(source):
    words = {}
    while len(words) < WORDS:
        words["".join(pick(source, SYLLABLES) for _ in range(1 + int(2.5 * source.random())))] = None
    return list(words)


def sum_of_numbers(source):
    """Rare characters: digits stand only here."""
    a, b = int(50 * source.random()), int(50 * source.random())
    return f"{a} + {b} = {a + b}."


def generate(characters, seed=1):
    """Returns a text of `characters`: sentences of words that depend on the word before, and a few sums of numbers."""
    source = random.Random(seed)
    words = words_of(source)
    successors = {word: [frequent(source, words) for _ in range(SUCCESSORS)] for word in words}
    sentences, length = [], 0
    while length < characters:
        if source.random() < 0.04:
            sentence = sum_of_numbers(source)
        else:
            sentence = [frequent(source, words)]
            for _ in range(2 + int(9 * source.random())):
                sentence.append(pick(source, successors[sentence[-1]]) if source.random() < 0.85 else frequent(source, words))
                if source.random() < 0.06:
                    sentence[-1] += ","
                    sentence.append(frequent(source, words))
            sentence = " ".join(sentence).capitalize() + pick(source, "....?!")
        sentences.append(sentence)
        length += len(sentence) + 1
    return " ".join(sentences)[:characters]
