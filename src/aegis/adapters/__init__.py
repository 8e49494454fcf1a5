"""One small file a framework; enforcement itself lives in `_enforce` alone."""
