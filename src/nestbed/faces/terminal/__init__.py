"""What a terminal shows: bars with rates and time left, tables, a curve in characters."""

from nestbed.faces.terminal.console import SafeConsole, Words, or_dash, say

__all__ = ["SafeConsole", "Words", "or_dash", "say"]
