"""The built-in data set: glyphs of 1,861 emoji in nine groups, and views rendered from them."""
