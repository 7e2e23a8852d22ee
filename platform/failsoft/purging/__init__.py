"""Removes what is kept about requests and runs: by age, or what one person sent; every place, one order."""
