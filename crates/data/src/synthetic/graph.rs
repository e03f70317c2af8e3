//! The edges of a stochastic block model. An edge appears in two rows, so every process draws the whole graph.

use std::ops::Range;

use fednmf_linalg::random::{Cursor, Purpose, Stream};

use crate::synthetic::spec::Synthetic;

/// An undirected graph without loops.
pub struct Graph {
    /// The neighbours of each node, ascending.
    neighbours: Vec<Vec<u32>>,
}

impl Graph {
    /// Draws the edges; work ∝ nodes × groups + edges.
    pub fn draw(spec: &Synthetic) -> Self {
        let (n, k) = (spec.n, spec.k);
        let mut neighbours = vec![Vec::new(); n];
        // Node i is in group i·k/n.
        let starts: Vec<usize> = (0..=k).map(|group| (group * n).div_ceil(k)).collect();
        for i in 0..n {
            let mut cursor = Stream::new(spec.seed, Purpose::SyntheticPattern, i as u64).at(0);
            for group in starts.windows(2) {
                let probability = if (group[0]..group[1]).contains(&i) { spec.density } else { spec.noise };
                let mut j = group[0].max(i + 1);
                while let Some(next) = success(&mut cursor, probability, j, group[1]) {
                    neighbours[i].push(next as u32);
                    neighbours[next].push(i as u32);
                    j = next + 1;
                }
            }
        }
        Graph { neighbours }
    }

    /// Passes the entries of `rows` × `cols` to `sink`, row by row with ascending columns.
    pub fn entries(&self, rows: Range<usize>, cols: &Range<usize>, sink: &mut dyn FnMut(usize, usize, f64)) {
        for i in rows {
            let row = &self.neighbours[i];
            let first = row.partition_point(|&j| (j as usize) < cols.start);
            for &j in row[first..].iter().take_while(|&&j| (j as usize) < cols.end) {
                sink(i, j as usize, 1.0);
            }
        }
    }
}

/// The first of the independent trials `from..to` that succeeds.
fn success(cursor: &mut Cursor, probability: f64, from: usize, to: usize) -> Option<usize> {
    if from >= to || probability <= 0.0 {
        return None;
    }
    // The gap to the next success is geometric.
    let gap = if probability < 1.0 { (1.0 - cursor.uniform()).ln() / (1.0 - probability).ln() } else { 0.0 };
    (gap < (to - from) as f64).then(|| from + gap as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str, rows: Range<usize>, cols: Range<usize>) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        Graph::draw(&Synthetic::parse(text).unwrap()).entries(rows, &cols, &mut |i, j, _| all.push((i, j)));
        all
    }

    #[test]
    fn edges_are_symmetric_and_a_rectangle_is_part_of_the_whole() {
        for text in ["graph,n=60,k=3", "graph,n=61,k=4,density=1,noise=0", "graph,n=7,k=7,density=1,noise=0.5"] {
            let n = Synthetic::parse(text).unwrap().n;
            let whole = entries(text, 0..n, 0..n);
            assert!(whole.windows(2).all(|w| w[0] < w[1]), "sorted, none twice");
            assert!(whole.iter().all(|&(i, j)| i != j && whole.binary_search(&(j, i)).is_ok()), "{text}");
            let mut part = whole;
            part.retain(|&(i, j)| (2..5).contains(&i) && (1..6).contains(&j));
            assert_eq!(part, entries(text, 2..5, 1..6));
        }
    }

    #[test]
    fn edges_have_the_probabilities_asked_for() {
        let (n, group) = (1200, |i: usize| i * 3 / 1200);
        let all = entries("graph,n=1200,k=3,density=0.2,noise=0.03", 0..n, 0..n);
        let inside = all.iter().filter(|&&(i, j)| group(i) == group(j)).count() as f64 / 2.0;
        let across = all.len() as f64 / 2.0 - inside;
        for (edges, pairs, probability) in
            [(inside, 3.0 * 400.0 * 399.0 / 2.0, 0.2), (across, 3.0 * 400.0 * 400.0, 0.03)]
        {
            let deviation = f64::sqrt(pairs * probability * (1.0 - probability));
            assert!((edges - pairs * probability).abs() < 5.0 * deviation, "{edges} of {pairs}");
        }
    }
}
