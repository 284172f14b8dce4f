"""What an HTML page holds."""

import html.parser


class Page(html.parser.HTMLParser):
    """Rows of tables, sources of what is loaded, and elements that were not closed."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.sources, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.sources += [value for name, value in attributes if name in ("src", "href")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
