"""Attention(q, D) = Σ similarity(q, k_i) v_i: what salary does a GPA of 3.5 suggest, and which rows are behind it?"""

from pathlib import Path

from regard import Database, Epanechnikov

table = Path(__file__).parent / "graduates.csv"
graduates = Database.from_table(table, key="gpa", value="salary", index="student")

print(graduates.attend(3.5))  # a similarity that fades with distance
print(graduates.attend(3.5, score=Epanechnikov(0.5)))  # one that is zero beyond half a grade point
print(graduates.average())  # every row alike
