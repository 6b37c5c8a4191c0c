"""Spoilt stores of every kind, made by seed and number, and what a build must make of them."""
