"""One incident from fault to recovery, measured live."""
