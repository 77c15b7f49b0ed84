"""Queries, keys and values: attention as the lookup that a key-value database does."""

from datetime import date

from regard import Database
from regard.errors import MissingKey

majors = Database.from_dict({"John Doe": "psychology", "Ada Bell": "engineering", "Mei Lin": "history"})
print("John Doe's major:", majors.lookup("John Doe"))

joined = Database.from_dict({"member 17": date(2019, 5, 4), "member 23": date(2021, 1, 30)})
print("member 23 joined on", joined.lookup("member 23"))

valuations = Database.from_dict({"Acme": 1.2e9, "Globex": 3.4e8})
print("Acme is valued at", valuations.lookup("Acme"))

# One queries keys, not values ...
try:
    majors.lookup("psychology")
except MissingKey as error:
    print("error:", error)

# ... unless they trade places.
print("Who studies psychology?", majors.swap().lookup("psychology"))
