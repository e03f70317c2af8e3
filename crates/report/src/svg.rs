//! Writes SVG. Colours are attributes of the shapes, so an exported plot looks as it does on the page.

use std::fmt::Write as _;

/// Colours that colour-blind readers can distinguish, after Okabe and Ito, so dark or light that each has a contrast of 3:1 to
/// white and to the ground of drawings in dark mode.
pub const COLOURS: [&str; 10] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07800", "#3a93c8", "#8c6bb1", "#808020", "#c0417f", "#777777"];
/// Dashes of lines, which tell them apart without colours.
const DASHES: [&str; 5] = ["none", "7 3", "2 2.5", "9 3 2 3", "14 4"];
pub const INK: &str = "#222222";
pub const PALE: &str = "#dddddd";

/// Text with the special characters of HTML and SVG escaped.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not allowed in XML, not even escaped.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The first characters of a text, with an ellipsis if it is longer.
pub fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Alignment of text relative to its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// An SVG document under construction; lengths are in pixels, y points down.
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    pub fn new(width: f64, height: f64) -> Self {
        Svg { width, height, body: String::new() }
    }

    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str) {
        let _ = write!(
            self.body,
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{colour}" stroke-width="1"/>"#
        );
    }

    /// The line of the i-th series, with its colour and dash.
    pub fn path(&mut self, points: &[(f64, f64)], i: usize) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let (colour, dash) = (COLOURS[i % COLOURS.len()], DASHES[(i + i / COLOURS.len()) % DASHES.len()]);
        let _ = write!(
            self.body,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dash}" stroke-linejoin="round"/>"#,
            points.join(" ")
        );
    }

    /// An upright line that marks a place on the horizontal axis.
    pub fn mark(&mut self, x: f64, (top, floor): (f64, f64)) {
        let _ = write!(
            self.body,
            r#"<line x1="{x:.1}" y1="{top:.1}" x2="{x:.1}" y2="{floor:.1}" stroke="{INK}" stroke-width="1.2" stroke-dasharray="4 3"/>"#
        );
    }

    /// A point with `note` as its tooltip.
    pub fn dot(&mut self, (x, y): (f64, f64), radius: f64, colour: &str, note: &str) {
        let _ = write!(
            self.body,
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius:.1}" fill="{colour}"><title>{}</title></circle>"#,
            escape(note)
        );
    }

    /// A bar with its corner at (x, y), and `note` as its tooltip unless that is empty.
    pub fn bar(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str, note: &str) {
        let title = if note.is_empty() { String::new() } else { format!("<title>{}</title>", escape(note)) };
        let (width, height) = (width.max(0.0), height.max(0.0));
        let _ = write!(
            self.body,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.2}" height="{height:.2}" fill="{colour}">{title}</rect>"#
        );
    }

    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, size: f64, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = write!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" font-size="{size}" fill="{INK}">{}</text>"#,
            escape(text)
        );
    }

    /// Text along the y axis, upwards.
    pub fn upright(&mut self, (x, y): (f64, f64), size: f64, text: &str) {
        let _ = write!(
            self.body,
            r#"<text transform="translate({x:.1} {y:.1}) rotate(-90)" text-anchor="middle" font-size="{size}" fill="{INK}">{}</text>"#,
            escape(text)
        );
    }

    /// An image scaled to width × height without smoothing.
    pub fn image(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), address: &str, note: &str) {
        let _ = write!(
            self.body,
            r#"<image x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" preserveAspectRatio="none" style="image-rendering:pixelated" href="{address}"><title>{}</title></image>"#,
            escape(note)
        );
    }

    /// The document. Screen readers read `title`, and `description` instead of the drawing.
    pub fn finish(self, title: &str, description: &str) -> String {
        let Svg { width, height, body } = self;
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}" role="img" font-family="system-ui, sans-serif"><title>{}</title><desc>{}</desc><rect width="100%" height="100%" fill="white"/>{body}</svg>"#,
            escape(title),
            escape(description)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_a_tag() {
        assert_eq!(escape("a<b>&\"'\u{1}\n"), "a&lt;b&gt;&amp;&quot;&#39;\u{fffd}\n");
        assert_eq!((short("abcdef", 4), short("äöü", 3)), ("abc…".to_string(), "äöü".to_string()));
    }

    /// The contrast of two colours, `#rgb` or `#rrggbb`, as WCAG 2 defines it.
    fn contrast(one: &str, other: &str) -> f64 {
        let luminance = |colour: &str| {
            let digits = colour.trim_start_matches('#');
            let width = digits.len() / 3;
            let channel = |i: usize| {
                let digits = &digits[width * i..width * (i + 1)];
                let x = f64::from(u8::from_str_radix(&digits.repeat(3 - width), 16).unwrap()) / 255.0;
                if x <= 0.040_45 { x / 12.92 } else { ((x + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * channel(0) + 0.7152 * channel(1) + 0.0722 * channel(2)
        };
        let (a, b) = (luminance(one), luminance(other));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_and_lines_can_be_seen_on_paper_and_in_the_dark() {
        let style = include_str!("style.css");
        let schemes: Vec<&str> = style
            .split(":root {")
            .skip(1)
            .map(|rest| rest.split('}').next().unwrap())
            .filter(|s| s.contains("--ink"))
            .collect();
        assert_eq!(schemes.len(), 2, "light and dark");
        for scheme in schemes {
            let colour = |name: &str| scheme.split(&format!("--{name}: ")).nth(1).unwrap().split(';').next().unwrap();
            for (text, ground) in [
                ("ink", "page"),
                ("ink", "card"),
                ("ink", "button"),
                ("note", "page"),
                ("note", "card"),
                ("card", "ink"),
            ] {
                let found = contrast(colour(text), colour(ground));
                assert!(found >= 4.5, "{text} on {ground}: {found} in {scheme}");
            }
            for line in COLOURS {
                let found = contrast(line, colour("card"));
                assert!(found >= 3.0, "{line} on a card: {found} in {scheme}");
            }
        }
        assert_eq!(contrast("#fff", "#000000"), 21.0);
    }
}
