"""Reading the tree without changes: browsing and counting."""
