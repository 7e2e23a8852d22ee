"""Tests of slow ranks: their times, the judgement, the shares, and two ranks together."""
