//! How similar the components of several runs are: they are matched one to one, and the clusters are scored by
//! silhouettes, as in NMFk (Alexandrov and Vesselinov 2014).

use ndarray::{Array2, Axis, s};

use fednmf_methods::federated::rows::fnmf::align::Assignment;

/// Stability of the components of one k.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Stability {
    /// Mean silhouette of all components by cosine distance: 1 if every run finds the same ones.
    pub mean: f64,
    /// That of the least stable component.
    pub least: f64,
    /// Mean cosine between a component and its counterparts in other runs.
    pub cosine: f64,
}

/// Largest number of rounds of matching.
const ROUNDS: usize = 20;

/// How consistently the runs find one component: scores of its cluster, which has one component of every run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Repeated {
    /// Mean silhouette of the cluster.
    pub silhouette: f64,
    /// Mean cosine between two of its components.
    pub cosine: f64,
}

/// The components of several runs, normalised and matched one to one.
pub struct Matched {
    /// The components, run after run (n × runs·k).
    components: Array2<f64>,
    cosines: Array2<f64>,
    /// The cluster of each component.
    clusters: Vec<usize>,
    runs: usize,
    k: usize,
}

/// How similar the components of several runs are.
#[derive(Debug, Clone, PartialEq)]
pub struct Similarities {
    /// The cosine between every two components, in the order of the clusters.
    pub cosines: Array2<f64>,
    /// The cluster of each component.
    pub clusters: Vec<usize>,
}

impl Matched {
    /// Matches the components of factors V (n × k each); `None` without any.
    pub fn new(runs: &[Array2<f64>]) -> Option<Self> {
        let (n, k) = runs.first()?.dim();
        let mut components = Array2::<f64>::zeros((n, runs.len() * k));
        for (r, v) in runs.iter().enumerate() {
            for j in 0..k {
                components.column_mut(r * k + j).assign(&v.column(j));
            }
        }
        normalise(&mut components);
        let cosines = components.t().dot(&components);
        let clusters = matched(&cosines, runs.len(), k);
        Some(Matched { components, cosines, clusters, runs: runs.len(), k })
    }

    /// The scores of each cluster; `None` for a single run.
    pub fn repeated(&self) -> Option<Vec<Repeated>> {
        let Matched { cosines, clusters, runs, k, .. } = self;
        if *runs < 2 {
            return None;
        }
        let mut all = vec![Repeated { silhouette: 0.0, cosine: 0.0 }; *k];
        for c in 0..runs * k {
            let mut sums = vec![0.0; *k];
            for d in (0..runs * k).filter(|&d| d != c) {
                sums[clusters[d]] += 1.0 - cosines[[c, d]];
            }
            let mine = clusters[c];
            let within = sums[mine] / (runs - 1) as f64;
            let other = (0..*k).filter(|&q| q != mine).map(|q| sums[q] / *runs as f64).fold(f64::INFINITY, f64::min);
            // With one component there is no other cluster: the largest possible distance stands in.
            let other = if other.is_finite() { other } else { 1.0 };
            let larger = within.max(other);
            let silhouette = if larger > 0.0 { (other - within) / larger } else { 0.0 };
            all[mine].silhouette += silhouette / *runs as f64;
            all[mine].cosine += (1.0 - within) / *runs as f64;
        }
        Some(all)
    }

    /// The cosines between all components, cluster by cluster.
    pub fn similarities(&self) -> Similarities {
        self.similarities_in(&(0..self.k).collect::<Vec<_>>())
    }

    /// The same with the clusters in another order, and numbered by it.
    pub fn similarities_in(&self, clusters: &[usize]) -> Similarities {
        let mut places = vec![0; self.k];
        clusters.iter().enumerate().for_each(|(place, &cluster)| places[cluster] = place);
        let places: Vec<usize> = self.clusters.iter().map(|&cluster| places[cluster]).collect();
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by_key(|&c| places[c]);
        Similarities {
            cosines: self.cosines.select(Axis(0), &order).select(Axis(1), &order),
            clusters: order.iter().map(|&c| places[c]).collect(),
        }
    }

    /// The mean of every cluster, normalised (n × k): the components that the runs agree on.
    pub fn means(&self) -> Array2<f64> {
        let mut means = Array2::zeros((self.components.nrows(), self.k));
        for (component, &cluster) in self.components.columns().into_iter().zip(&self.clusters) {
            let mut mean = means.column_mut(cluster);
            mean += &component;
        }
        normalise(&mut means);
        means
    }
}

/// Divides every column by its norm; a column of zeros stays.
fn normalise(columns: &mut Array2<f64>) {
    for mut column in columns.columns_mut() {
        let norm = column.dot(&column).sqrt();
        if norm > 0.0 {
            column /= norm;
        }
    }
}

/// The stability of factors V (n × k each) of at least two runs; `None` for fewer.
pub fn stability(runs: &[Array2<f64>]) -> Option<Stability> {
    let all = Matched::new(runs)?.repeated()?;
    let mean = |of: fn(&Repeated) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    Some(Stability {
        mean: mean(|c| c.silhouette),
        least: all.iter().map(|c| c.silhouette).fold(f64::INFINITY, f64::min),
        cosine: mean(|c| c.cosine),
    })
}

/// The cluster of every component. Each cluster has one component of every run; runs are matched in turn to maximise the
/// sum of cosines with the members in the other runs, until nothing changes. The first run is the initial one.
fn matched(cosines: &Array2<f64>, runs: usize, k: usize) -> Vec<usize> {
    let mut clusters: Vec<usize> = (0..runs * k).map(|c| c % k).collect();
    let mut known = 1;
    let mut assignment = Assignment::new(k);
    for round in 0..ROUNDS {
        let before = clusters.clone();
        for r in 0..runs {
            if round == 0 && r == 0 {
                continue;
            }
            let mut cost = vec![0.0; k * k];
            for other in (0..known).filter(|&o| o != r) {
                let block = cosines.slice(s![r * k..(r + 1) * k, other * k..(other + 1) * k]);
                for ((j, d), cosine) in block.indexed_iter() {
                    cost[j * k + clusters[other * k + d]] -= cosine;
                }
            }
            assignment.reset();
            clusters[r * k..(r + 1) * k].copy_from_slice(assignment.solve(&cost));
            known = known.max(r + 1);
        }
        if round > 0 && clusters == before {
            break;
        }
    }
    clusters
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Purpose, Stream, uniform_factor};

    use super::*;

    fn random(seed: u64, n: usize, k: usize) -> Array2<f64> {
        uniform_factor(&Stream::new(seed, Purpose::Probe, 0), 0..n, k, 1.0)
    }

    #[test]
    fn equal_components_in_any_order_and_scale_are_stable_and_random_ones_are_not() {
        let v = random(1, 50, 4);
        let turned = v.select(Axis(1), &[2, 0, 3, 1]) * 7.0;
        let found = stability(&[v.clone(), turned, v.select(Axis(1), &[3, 2, 1, 0])]).unwrap();
        assert!(found.least > 0.999 && found.mean > 0.999 && found.cosine > 0.999, "{found:?}");
        let found = stability(&[random(1, 50, 4), random(2, 50, 4), random(3, 50, 4)]).unwrap();
        assert!(found.mean < 0.4, "{found:?}");
        assert_eq!(stability(&[v]), None);
    }

    #[test]
    fn similarities_are_blocks_of_clusters() {
        let eye = Array2::<f64>::eye(2);
        let turned = eye.select(Axis(1), &[1, 0]);
        let matched = Matched::new(&[eye, turned]).unwrap();
        let found = matched.similarities();
        let same = |a: usize, b: usize| f64::from(u8::from(a / 2 == b / 2));
        assert_eq!(found.cosines, Array2::from_shape_fn((4, 4), |(a, b)| same(a, b)));
        assert_eq!(found.clusters, [0, 0, 1, 1]);
        assert_eq!(matched.similarities_in(&[1, 0]), found, "blocks in another order, with the same numbers");
    }

    #[test]
    fn an_unstable_component_has_the_least_silhouette() {
        let v = Array2::<f64>::eye(6);
        let (mut a, mut b) = (v.slice(s![.., ..3]).to_owned(), v.slice(s![.., ..3]).to_owned());
        a.column_mut(2).assign(&v.column(4));
        b.column_mut(2).assign(&v.column(5));
        let found = stability(&[a, b]).unwrap();
        // Two clusters of equal vectors, and one whose two members are orthogonal to each other as to all others.
        assert!((found.mean - 2.0 / 3.0).abs() < 1e-12 && found.least.abs() < 1e-12, "{found:?}");
        assert!((found.cosine - 2.0 / 3.0).abs() < 1e-12);
        let one = stability(&[v.slice(s![.., ..1]).to_owned(), v.slice(s![.., ..1]).to_owned()]).unwrap();
        assert_eq!((one.mean, one.least), (1.0, 1.0));
    }

    #[test]
    fn the_consensus_is_the_mean_of_each_cluster() {
        let v = random(5, 40, 3);
        let turned = v.select(Axis(1), &[2, 0, 1]) * 3.0;
        let means = Matched::new(&[v.clone(), turned]).unwrap().means();
        for j in 0..3 {
            let expected = &v.column(j) / v.column(j).dot(&v.column(j)).sqrt();
            assert!((&means.column(j) - &expected).iter().all(|e| e.abs() < 1e-12), "in the order of the first run");
        }
        // Two members at a right angle: half way between them.
        let eye = Array2::<f64>::eye(2);
        let [a, b] = [0, 1].map(|j| eye.slice(s![.., j..=j]).to_owned());
        assert!((Matched::new(&[a, b]).unwrap().means()[[0, 0]] - 0.5f64.sqrt()).abs() < 1e-12);
        assert!(Matched::new(std::slice::from_ref(&v)).unwrap().repeated().is_none() && Matched::new(&[]).is_none());
    }
}
