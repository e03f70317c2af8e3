//! Small images as PNG in a `data:` URL.

use std::io::Write as _;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

/// An image of width × height RGB pixels.
pub struct Raster {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

/// The colour map of values from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shade {
    /// Black to white, for images.
    Grey,
    /// Dark violet to green to yellow, perceptually uniform, for matrices.
    Heat,
}

/// Evenly spaced support colours of [`Shade::Heat`].
const HEAT: [[f64; 3]; 5] =
    [[68.0, 1.0, 84.0], [59.0, 82.0, 139.0], [33.0, 145.0, 140.0], [94.0, 201.0, 98.0], [253.0, 231.0, 37.0]];

impl Shade {
    /// The colour of a value; negative values and NaN count as 0, values above 1 as 1.
    fn colour(self, value: f64) -> [u8; 3] {
        let x = if value > 0.0 { value.min(1.0) } else { 0.0 };
        match self {
            Shade::Grey => [(255.0 * x).round() as u8; 3],
            Shade::Heat => {
                let place = x * (HEAT.len() - 1) as f64;
                let i = (place as usize).min(HEAT.len() - 2);
                let part = place - i as f64;
                std::array::from_fn(|c| (HEAT[i][c] + part * (HEAT[i + 1][c] - HEAT[i][c])).round() as u8)
            }
        }
    }
}

impl Raster {
    /// The image whose pixel (row, column) has the value `of(row, column)`, relative to `largest`.
    pub fn new(height: usize, width: usize, largest: f64, shade: Shade, of: impl Fn(usize, usize) -> f64) -> Self {
        let scale = if largest > 0.0 { 1.0 / largest } else { 0.0 };
        let places = (0..height).flat_map(|i| (0..width).map(move |j| (i, j)));
        let pixels = places.flat_map(|(i, j)| shade.colour(scale * of(i, j))).collect();
        Raster { width, height, pixels }
    }

    /// The image as a `data:image/png` URL.
    pub fn data_url(&self) -> String {
        format!("data:image/png;base64,{}", base64(&self.encoded()))
    }

    fn encoded(&self) -> Vec<u8> {
        let mut lines = ZlibEncoder::new(Vec::new(), Compression::default());
        for line in self.pixels.chunks(3 * self.width.max(1)) {
            // Each line begins with its filter type: none. Writing into memory does not fail.
            let _ = lines.write_all(&[0]).and_then(|()| lines.write_all(line));
        }
        let size = |n: usize| (n as u32).to_be_bytes();
        // 8 bits per channel; RGB; the standard's only compression and filter methods; not interlaced.
        let head = [&size(self.width)[..], &size(self.height)[..], &[8, 2, 0, 0, 0][..]].concat();
        let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
        for (name, data) in [(b"IHDR", head), (b"IDAT", lines.finish().unwrap_or_default()), (b"IEND", Vec::new())] {
            let mut sum = Crc::new();
            sum.update(name);
            sum.update(&data);
            for part in [&size(data.len())[..], &name[..], &data[..], &sum.sum().to_be_bytes()[..]] {
                out.extend_from_slice(part);
            }
        }
        out
    }
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0u32, |w, &b| w << 8 | u32::from(b)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= three.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn base64_as_in_the_standard() {
        // The test vectors of RFC 4648, section 10.
        for (text, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(text.as_bytes()), coded);
        }
    }

    #[test]
    fn the_pixels_can_be_read_back() {
        let raster = Raster::new(2, 3, 4.0, Shade::Grey, |i, j| if (i, j) == (1, 2) { 4.0 } else { j as f64 });
        let bytes = raster.encoded();
        assert_eq!(&bytes[12..16], b"IHDR");
        assert_eq!((&bytes[16..20], &bytes[20..24]), (&[0, 0, 0, 3][..], &[0, 0, 0, 2][..]));
        let length = u32::from_be_bytes(bytes[33..37].try_into().unwrap()) as usize;
        let mut lines = Vec::new();
        flate2::read::ZlibDecoder::new(&bytes[41..41 + length]).read_to_end(&mut lines).unwrap();
        assert_eq!(lines, [0, 0, 0, 0, 64, 64, 64, 128, 128, 128, 0, 0, 0, 0, 64, 64, 64, 255, 255, 255]);
        assert!(bytes.ends_with(b"IEND\xae\x42\x60\x82"));
    }

    #[test]
    fn no_value_falls_outside_the_colours() {
        for value in [f64::NAN, -1.0, 0.0, 0.3, 1.0, 7.0, f64::INFINITY] {
            Shade::Heat.colour(value);
        }
        assert_eq!(Shade::Heat.colour(1.0), [253, 231, 37]);
        assert_eq!(Shade::Heat.colour(f64::NAN), [68, 1, 84]);
    }
}
