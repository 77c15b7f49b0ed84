"""The tour as one offline page: prose, formulas, figures, and sliders that compute in the page.

A chapter is a file of text, `chapters/NAME.html`, and a module beside it that measures what stands in its slots and
draws its figures. A reader's browser fetches nothing and runs the page's own script and style alone.
"""

from regard.cli.tour.page.assembly import tour_page

__all__ = ["tour_page"]
