"""What looks at the tree and changes nothing: browsing, counting."""
