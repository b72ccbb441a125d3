"""Any text, and the texts that break out of quotes most often."""

from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NASTY = st.sampled_from([
    "", " ", "y", "n", "Yes", "on", "OFF", "null", "~", "22:22", "0123", "0o17", "1e3", "1_000", ".inf", "-.inf", "0x1f",
    "2001-01-01", "=", "<<", "- a", "a: b", "a #b", "#", "!tag", "&anchor", "*alias", "%d", "@x", "`", "---", "...", "{}",
    "[]", "?", "|", ">", "'", '"', "\\", "$(touch pwned)", "${HOME}", "$HOME", "$$", "!!", "a\nb", "a\r\nb", "\t",
    "\x1b[31mred", "\x85", "\u2028", "\u202e", "\ufeff", "\N{SNOWMAN}", "\U0001f600", "\x7f", "\xa0", "-1", "--", "-n",
    "it's", "x\\", "\\n", "\n", "a\n", "[0]=x", "{a,b}", "~root", "*", "a=b", "; rm -rf /", "trailing ", "\x01\x1f",
])
ANY = TEXT | NASTY
