"""Text as nobody would write it, for property tests: any code point, and the traps more often than chance has them."""

from __future__ import annotations

import sys
import unicodedata

from hypothesis import strategies as st

TRAPS = (
    *(
        "a",
        "e",
        " ",
        "7",
        "1",
        "#",
        "play",
        "\u0301",
        "\u0327",
        "\u0344",
        "\u0338",
        "\u3099",
        "\uff9e",
        "\u1161",
        "\u11a8",
    ),
    *("\u1100", "\uac00", "\u3164", "\u314f", "\uffc2", "\u200b", "\u200c", "\u200d", "\ufe0f", "\ufe0e", "\u20e3"),
    *(
        "\u061c",
        "\u202e",
        "\u2066",
        "\ufeff",
        "\xad",
        "\x00",
        "\x85",
        "\t",
        "\r\n",
        "\xa0",
        "\u3000",
        "\u2028",
        "\ufffe",
    ),
    *("\ud83d", "\ude00", "\udc00", "\ufdfa", "\ufdfb", "\ufb2c", "\u0958", "\u09c7", "\u09be", "\u0e33", "\u0f73"),
    *(
        "\u0645",
        "\u064b",
        "\u0928",
        "\u094d",
        "\u0675",
        "\ufee2",
        "\xa8",
        "\xaf",
        "\u2126",
        "\u212b",
        "\u1e9b",
        "\u0323",
    ),
    *("\xa9", "\xae", "\u2122", "\u203c", "\u2194", "\u21ae", "\u24c2", "\u3297", "\uff11", "\U0001d41a", "\u1d15e"),
    *("\U0001f525", "\U0001f468", "\U0001f33e", "\U0001f3fd", "\U0001f1eb", "\U0001f1f7", "\U0001f3f4", "\U000e0067"),
    *("\U000e007f", "\U0001f201", "\u2764", "\u261d", "\U0001d15e", "\U0001d1bb", "\U00011131", "\U00011127", "\ufffd"),
)

CHANGED_BY_NFKC = tuple(
    chr(code)
    for code in range(sys.maxunicode + 1)
    if not 0xD800 <= code <= 0xDFFF and not unicodedata.is_normalized("NFKC", chr(code))
)

any_text = st.lists(
    st.one_of(
        st.sampled_from(TRAPS),
        st.sampled_from(CHANGED_BY_NFKC),
        st.characters(),
        st.integers(0, sys.maxunicode).map(chr),  # surrogates too
    ),
    max_size=30,
).map("".join)

clean_ascii = st.text(st.sampled_from([chr(code) for code in range(0x20, 0x7F)]), max_size=200)
