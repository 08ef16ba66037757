"""Files that are damaged, hostile or of another writer, and what reading them must come to.

python -m verification.hostile               every case made by hand: a table of outcomes
python -m verification.hostile --minutes 30  mutations for half an hour
"""
