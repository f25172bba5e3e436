//! The page that holds drawings and tables.

use super::escape;

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;color:#333;max-width:1580px;margin:2em auto;padding:0 1.5em}\
h1{font-size:1.5em;margin:0 0 .2em}h2{font-size:1.15em;margin:1.6em 0 .4em}p{max-width:50em;margin:.4em 0}\
.drawings{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,560px),1fr));gap:1em}\
svg{width:100%;height:auto;border:1px solid #e4e4e4;border-radius:4px;background:#fff}\
.wide{overflow-x:auto}table{border-collapse:collapse;margin:.6em 0}\
td,th{padding:.15em .9em .15em 0;text-align:right;border-bottom:1px solid #eee}\
td:first-child,th:first-child{text-align:left}th{border-bottom:1px solid #999}.pass{color:#00734f}.miss{color:#b03a00}";

/// A page under construction.
pub struct Page {
    html: String,
    drawings: bool,
}

impl Page {
    /// An empty page with this title.
    pub fn new(title: &str) -> Self {
        let title = escape(title);
        let html = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
             <style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n"
        );
        Self { html, drawings: false }
    }

    fn leave_drawings(&mut self) {
        if std::mem::take(&mut self.drawings) {
            self.html += "</div>\n";
        }
    }

    /// A heading.
    pub fn heading(&mut self, text: &str) {
        self.leave_drawings();
        self.html += &format!("<h2>{}</h2>\n", escape(text));
    }

    /// A paragraph.
    pub fn text(&mut self, text: &str) {
        self.leave_drawings();
        self.html += &format!("<p>{}</p>\n", escape(text));
    }

    /// A drawing; several after each other stand side by side where there is room.
    pub fn drawing(&mut self, svg: &str) {
        if !std::mem::replace(&mut self.drawings, true) {
            self.html += "<div class=\"drawings\">\n";
        }
        // What scales by itself needs to know its shape.
        let svg = svg.replacen("<svg width=\"760\" height=\"430\"", "<svg", 1);
        self.html += &svg;
    }

    /// A table. Cells that say `pass` or `miss` are coloured.
    pub fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        self.leave_drawings();
        // A table that is wider than the page is moved by itself.
        self.html += "<div class=\"wide\"><table><tr>";
        for cell in head {
            self.html += &format!("<th>{}</th>", escape(cell));
        }
        self.html += "</tr>\n";
        for row in rows {
            self.html += "<tr>";
            for cell in row {
                let class = match cell.as_str() {
                    "pass" => " class=\"pass\"",
                    "miss" => " class=\"miss\"",
                    _ => "",
                };
                self.html += &format!("<td{class}>{}</td>", escape(cell));
            }
            self.html += "</tr>\n";
        }
        self.html += "</table></div>\n";
    }

    /// A part that is HTML already, which may have a script of its own.
    pub fn part(&mut self, html: &str) {
        self.leave_drawings();
        self.html += html;
    }

    /// The page.
    pub fn finish(mut self) -> String {
        self.leave_drawings();
        self.html + "</body></html>\n"
    }
}
