use ndarray::{Array2, ArrayView2, ShapeBuilder, array};

use super::*;

fn options(k: usize, max_iters: usize) -> Options {
    Options { max_iters: Some(max_iters), eval_every: 1, scale: Some(FactorScale::AsFound), ..Options::new(k) }
}

/// A run of the method of this name.
fn fit<'a, 'w>(
    name: &str,
    words: &'w [String],
    x: impl Into<MatrixView<'a, f64>>,
    options: &Options,
    start: Option<Start<'_, f64>>,
) -> Result<Fit<f64>> {
    let pair = |word: &'w String| word.trim_start_matches("--").split_once('=').unwrap();
    let given: Vec<(String, &str)> =
        words.iter().map(pair).map(|(name, text)| (name.replace('-', "_"), text)).collect();
    let given: Vec<(&str, &str)> = given.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    run(named(name, &given)?, vec![x.into()], options, start, None)
}

#[test]
fn every_method_without_parties_begins_with_the_given_start() {
    let u = Array2::from_shape_fn((40, 2), |(i, j)| (1 + (i * (j + 2)) % 7) as f64);
    let v = Array2::from_shape_fn((30, 2), |(i, j)| (1 + (i * (j + 3)) % 5) as f64);
    let given = u.dot(&v.t());
    for name in ["auto", "hals", "bpp", "mu", "kl-mu", "dsanls", "vr-dsanls"] {
        let found = fit(name, &[], &given, &options(2, 1), Some((u.view(), v.view()))).unwrap();
        let product = found.factors[0].values.dot(&found.factors[1].values.t());
        let off = (&product - &given).mapv(|x| x * x).sum().sqrt() / given.mapv(|x| x * x).sum().sqrt();
        assert!(off < 0.05, "{name} is off by {off} after one iteration from the solution");
    }
}

/// A start and a run of a method with penalties, as in
///
/// ```python
/// m, n, k = 12, 9, 3
/// X = np.array([[float((7*i + 3*j*j + i*j) % 11) for j in range(n)] for i in range(m)])
/// W = np.array([[(1 + (i*(j+2)) % 5)/4 for j in range(k)] for i in range(m)])
/// H = np.array([[(1 + (i*(j+3)) % 7)/4 for i in range(n)] for j in range(k)])
/// NMF(k, init="custom", solver=solver, beta_loss=loss, alpha_W=a, alpha_H=b, l1_ratio=r, max_iter=its, tol=0)
///     .fit_transform(X, W=W, H=H)
/// ```
fn penalized(name: &str, [a, b, r]: [f64; 3], max_iters: usize) -> Fit<f64> {
    let x = Array2::from_shape_fn((12, 9), |(i, j)| ((7 * i + 3 * j * j + i * j) % 11) as f64);
    let u = Array2::from_shape_fn((12, 3), |(i, j)| (1 + (i * (j + 2)) % 5) as f64 / 4.0);
    let v = Array2::from_shape_fn((9, 3), |(i, j)| (1 + (i * (j + 3)) % 7) as f64 / 4.0);
    let words = [format!("--alpha-u={a}"), format!("--alpha-v={b}"), format!("--l1-ratio={r}")];
    let textbook = (name == "kl-mu").then(|| "--extrapolation=none".to_string());
    let words: Vec<String> = words.into_iter().chain(textbook).collect();
    let options = Options { eval_every: 0, ..options(3, max_iters) };
    fit(name, &words, &x, &options, Some((u.view(), v.view()))).unwrap()
}

#[test]
fn penalties_are_those_of_scikit_learn() {
    // scikit-learn 1.9.1: after seven iterations of "cd", from the same start, the same numbers.
    let found = penalized("hals", [0.3, 0.1, 0.5], 7);
    let [w, h] = [0, 1].map(|i| found.factors[i].values.row(0).to_vec());
    let near = |a: &[f64], b: [f64; 3]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
    assert!(near(&w, [0.9475892814309188, 2.2768877763515243, 0.0]), "{w:?}");
    assert!(near(&h, [1.9226779498258115, 0.0, 2.395255891909871]), "{h:?}");
    // After five of "mu" with only L1 for the divergence.
    let found = penalized("kl-mu", [0.02, 0.03, 1.0], 5);
    let [w, h] = [0, 1].map(|i| found.factors[i].values.row(0).to_vec());
    assert!(near(&w, [0.7603795273269266, 2.475640138720847, 1.2466647663843655]), "{w:?}");
    assert!(near(&h, [1.034530455613926, 0.7730616564834449, 0.9203233389523848]), "{h:?}");
    // After 20000 of "cd" and 200000 of "mu": the objective.
    for (name, weights, iterations, objective) in [
        ("hals", [0.3, 0.1, 0.5], 20_000, 343.4680764993931),
        ("hals", [0.2, 0.2, 0.0], 20_000, 361.2717590621196),
        ("hals", [0.5, 0.25, 1.0], 20_000, 485.5233469296543),
        ("mu", [0.3, 0.1, 0.5], 50_000, 342.6435938285858),
        ("kl-mu", [0.02, 0.03, 0.5], 50_000, 70.80900414086639),
        ("kl-mu", [0.05, 0.05, 0.0], 50_000, 91.57603214922239),
    ] {
        let found = penalized(name, weights, iterations);
        let expected = objective_of(&found, name == "kl-mu", weights);
        // From here rounding decides which of two minima "hals" finds.
        assert!(expected < objective * (1.0 + 1e-4), "{name} {weights:?}: {expected} {objective}");
    }
}

/// A case of tests/data/beta.json, which tests/data/beta.py makes with scikit-learn.
#[derive(serde::Deserialize)]
struct BetaCase {
    beta: f64,
    shape: [usize; 3],
    x: Vec<f64>,
    u: Vec<f64>,
    v: Vec<f64>,
    alpha_u: f64,
    alpha_v: f64,
    l1_ratio: f64,
    iterations: usize,
    u_end: Vec<f64>,
    v_end: Vec<f64>,
}

#[test]
fn iterates_for_beta_divergences_are_those_of_scikit_learn() {
    let cases: Vec<BetaCase> = serde_json::from_str(include_str!("../../tests/data/beta.json")).unwrap();
    assert!(cases.len() > 15);
    for case in cases {
        let [m, n, k] = case.shape;
        let matrix = |x: &[f64], rows, cols| Array2::from_shape_vec((rows, cols), x.to_vec()).unwrap();
        let x = matrix(&case.x, m, n);
        let (u, v) = (matrix(&case.u, m, k), matrix(&case.v, n, k));
        let BetaCase { beta, alpha_u, alpha_v, l1_ratio, .. } = case;
        let mut words = vec![
            "--extrapolation=none".into(),
            format!("--beta={beta}"),
            format!("--alpha-u={alpha_u}"),
            format!("--alpha-v={alpha_v}"),
        ];
        words.extend((l1_ratio > 0.0).then(|| format!("--l1-ratio={l1_ratio}")));
        let sparse = sprs::CsMatI::<f64, i32, usize>::csr_from_dense(x.view(), 0.0);
        for data in [MatrixView::from(&x), MatrixView::from(&sparse)] {
            let start = Some((u.view(), v.view()));
            let found = fit("beta-mu", &words, data, &options(k, case.iterations), start).unwrap();
            for (factor, end) in found.factors.iter().zip([&case.u_end, &case.v_end]) {
                let far =
                    factor.values.iter().zip(end).fold(0.0, |most: f64, (a, b)| most.max((a - b).abs() / (1.0 + b)));
                // For other β fits have a lower bound, which is relative to the data here and absolute in scikit-learn.
                let bound = if [1.0, 2.0].contains(&beta) { 1e-9 } else { 1e-5 };
                assert!(far < bound, "beta {beta}, {alpha_u}: {far:e}");
            }
        }
    }
}

/// The objective of [`penalized`], by its definition.
fn objective_of(found: &Fit<f64>, divergence: bool, [a, b, r]: [f64; 3]) -> f64 {
    let x = Array2::from_shape_fn((12, 9), |(i, j)| ((7 * i + 3 * j * j + i * j) % 11) as f64);
    let (u, v) = (&found.factors[0].values, &found.factors[1].values);
    let one = |(m, f): (&f64, &f64)| match divergence {
        false => 0.5 * (m - f).powi(2),
        true => (if *m > 0.0 { m * (m / f).ln() } else { 0.0 }) - m + f,
    };
    let penalty = |x: &Array2<f64>| r * x.sum() + 0.5 * (1.0 - r) * x.mapv(|x| x * x).sum();
    x.iter().zip(&u.dot(&v.t())).map(one).sum::<f64>() + 9.0 * a * penalty(u) + 12.0 * b * penalty(v)
}

#[test]
fn every_method_with_penalties_comes_to_the_same_minimum() {
    let weights = [0.3, 0.1, 0.5];
    let best = penalized("mu", weights, 50_000);
    let objective = objective_of(&best, false, weights);
    let x = Array2::from_shape_fn((12, 9), |(i, j)| ((7 * i + 3 * j * j + i * j) % 11) as f64);
    let [u, v] = [0, 1].map(|i| best.factors[i].values.mapv(|x| 1.02 * x + 0.005));
    let common = ["--alpha-u=0.3", "--alpha-v=0.1", "--l1-ratio=0.5"];
    for (name, more) in [
        ("auto", &[][..]),
        ("bpp", &["--extrapolation=restart"]),
        ("mu", &[]),
        ("dsanls", &["--sketch-size=100%"]),
        ("dsanls", &["--sketch-size=100%", "--solver=pgd"]),
        ("vr-dsanls", &["--epoch=4", "--sketch-size=80%"]),
        ("vr-dsanls", &[]),
    ] {
        let words: Vec<String> = common.iter().chain(more).map(ToString::to_string).collect();
        let options = Options { eval_every: 20_000, ..options(3, 20_000) };
        let found = fit(name, &words, &x, &options, Some((u.view(), v.view()))).unwrap();
        let expected = objective_of(&found, false, weights);
        assert!((expected / objective - 1.0).abs() < 1e-4, "{name} {more:?}: {expected} {objective}");
        let measured = found.measure("objective").unwrap();
        assert!((measured / expected - 1.0).abs() < 1e-9, "{name} {more:?}: {measured} {expected}");
    }
}

#[test]
fn another_scale_of_the_components_is_refused_with_penalties() {
    let x = Array2::<f64>::ones((4, 3));
    let fit = |scale| Hals::new(2).max_iters(1).penalty(Penalty::l2(1.0)).scale(scale).fit(&x);
    let refused = fit(FactorScale::UnitV).err().unwrap().message;
    assert!(refused.contains("unit-v") && refused.contains("sorted"), "{refused}");
    assert!(fit(FactorScale::Sorted).is_ok());
}

/// Four blocks with noise.
fn blocks() -> Array2<f64> {
    Array2::from_shape_fn((60, 40), |(i, j)| {
        let noise = ((7 * i + 13 * j + i * j) % 17) as f64 / 170.0;
        if i / 15 == j / 10 { (1 + (3 * i) % 7) as f64 * (2 + (5 * j) % 11) as f64 / 40.0 + noise } else { noise }
    })
}

fn search(ks: &[usize]) -> Search {
    Search::over(ks.iter().copied()).runs(3).max_iters(100)
}

#[test]
fn the_consensus_of_a_search_is_fitted_exactly() {
    let found = search(&[2, 4]).fit(&blocks()).unwrap();
    assert_eq!(found.points.iter().map(|point| point.k).collect::<Vec<_>>(), [2, 4]);
    let (choice, consensus) = (found.choice.unwrap(), found.consensus.unwrap());
    assert_eq!((choice.k, consensus.u.dim(), consensus.v.dim()), (4, (60, 4), (40, 4)));
    let u = project((&blocks()).into(), &consensus.v.view(), None, [0.0; 2], None, 1).unwrap();
    assert!((&u - &consensus.u).iter().all(|x| x.abs() < 1e-9));
    let rmse = (&blocks() - &u.dot(&consensus.v.t())).mapv(|x| x * x).mean().unwrap().sqrt();
    assert!((consensus.rmse / rmse - 1.0).abs() < 1e-6, "{} {rmse}", consensus.rmse);
    assert_eq!(found.similarities[1].clusters, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
}

#[test]
fn an_observer_sees_every_run_of_a_search_and_ends_it() {
    let mut seen = std::collections::BTreeSet::new();
    let observe = |k, run, _, _: &fednmf_methods::Measures| {
        seen.insert((k, run));
        true
    };
    assert!(search(&[1, 2]).fit_observed(&blocks(), observe).is_ok());
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]);
    let ended = search(&[1]).fit_observed(&blocks(), |_, _, _, _| false);
    assert!(ended.err().unwrap().message.contains("ended"));
    let refused = search(&[1, 41]).fit(&blocks()).err().unwrap().message;
    assert!(refused.contains("41 components are more than the 60 x 40 matrix"), "{refused}");
}

#[test]
fn borrowed_matrices_are_not_copied_and_have_the_same_factors() {
    let all = blocks();
    #[expect(unsafe_code, reason = "the test looks at what is borrowed")]
    // SAFETY: `all` outlives the matrix.
    let fednmf_data::Matrix::Dense(same) = unsafe { MatrixView::from(&all).unbounded() }.unwrap() else {
        panic!("dense")
    };
    assert_eq!(same.as_ptr(), all.as_ptr());
    let product = |x: MatrixView<'_, f64>| {
        let found = fit("hals", &[], x, &options(4, 20), None).unwrap();
        found.u().dot(&found.v().t())
    };
    let turned = ArrayView2::from_shape((60, 40).f(), all.as_slice().unwrap()).unwrap();
    assert_eq!(product((&turned).into()), product((&turned.to_owned()).into()));
    // A sparse matrix by rows or by columns, with any index type.
    let rows = sprs::CsMatI::<f64, i32, usize>::csr_from_dense(all.view(), 0.1);
    let columns = sprs::CsMatI::<f64, u64, u32>::csc_from_dense(all.view(), 0.1);
    assert_eq!(product((&rows).into()), product((&columns).into()));
    assert_eq!(product((&rows.view()).into()), product((&rows.to_other_types::<u16, _, u32>()).into()));
    // Every other column: neither by rows nor by columns, and checked all the same.
    let mut negative = blocks();
    negative[[3, 4]] = -1.0;
    let refused = Hals::new(2).fit(negative.slice(ndarray::s![.., ..;2])).err().unwrap().message;
    assert!(refused.contains("row 3, column 2"), "{refused}");
}

#[test]
fn an_observer_ends_a_run() {
    let x = Array2::from_shape_fn((20, 10), |(i, j)| ((i * j) % 7) as f64);
    let mut seen = Vec::new();
    let found = Hals::new(2).max_iters(1000).eval_every(1).fit_observed(&x, |iteration, measures| {
        seen.push((iteration, measures.len()));
        seen.len() < 2
    });
    let found = found.unwrap();
    assert_eq!(found.stopped_by(), Stop::Observer);
    assert!(found.iterations() < 1000 && seen.len() == 2 && seen.iter().all(|(_, measures)| *measures > 0));
}

#[test]
fn wrong_parameters_are_named() {
    let message = |name: &str, option: &str, text: &str| named(name, &[(option, text)]).unwrap_err().message;
    let message_text = message("hals", "inner_sweeps", "0");
    assert!(message_text.starts_with("hals: --inner-sweeps 0: must be"), "{message_text}");
    assert_eq!(message("hals", "sweeps", "1"), "hals: --sweeps 1: there is no such option");
    assert!(message("nmf", "x", "1").starts_with("nmf: no such method; did you mean fnmf?"));
}

#[test]
fn projections_are_the_exact_solution() {
    let v = array![[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]];
    let u = array![[1.0, 2.0], [0.0, 3.0]];
    let exact = |x: &Array2<f64>| project(x.into(), &v.view(), None, [0.0; 2], None, 1);
    let found = exact(&u.dot(&v.t())).unwrap();
    assert!((&found - &u).iter().all(|x: &f64| x.abs() < 1e-10), "{found}");
    let refused = exact(&array![[1.0, -1.0, 0.0]]).unwrap_err().message;
    assert!(refused.contains("row 0, column 1"), "{refused}");
    let refused = exact(&array![[1.0]]).unwrap_err().message;
    assert!(refused.contains("V has 3 rows"), "{refused}");
}

#[test]
fn missing_entries_are_left_out_and_marks_in_files_refused() {
    let full = blocks();
    let mut x = full.clone();
    x[[3, 4]] = f64::NAN;
    assert!(Hals::new(4).fit(&x).err().unwrap().message.contains("row 3, column 4"));
    let found = Hals::new(4).missing(Missing::Nan).max_iters(200).fit(&x).unwrap();
    let filled = found.u().row(3).dot(&found.v().row(4));
    assert!((filled - full[[3, 4]]).abs() < 0.2, "{filled} {}", full[[3, 4]]);
    let marks = Hals::new(4).missing(Missing::Marks("marks.npy".into())).fit(&x);
    assert!(marks.err().unwrap().message.contains("marks.npy"));
    let start = Hals::new(4).start(Init::File("start.npz".into())).fit(&full);
    assert!(start.err().unwrap().message.contains("start.npz"));
}

#[test]
fn a_projection_repeats_the_penalty_and_the_divergence_of_the_fit() {
    let x = blocks();
    let fit = Hals::new(4).penalty(Penalty::l1(0.01)).max_iters(2000).fit(&x).unwrap();
    let far = |a: &Array2<f64>, b: &Array2<f64>| (a - b).iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    assert!(far(&fit.project(&x).unwrap(), fit.u()) < 1e-3);
    let fit = KlCd::new(2).max_iters(500).fit(&x).unwrap();
    assert!(far(&fit.project(&x).unwrap(), fit.u()) < 1e-2);
}

#[test]
fn settings_out_of_range_are_refused() {
    let x = blocks();
    let refused = |hals: Hals| hals.fit(&x).err().unwrap().message;
    assert!(refused(Hals::new(0)).contains("components"));
    assert!(refused(Hals::new(2).threads(0)).contains("threads"));
    assert!(refused(Hals::new(2).tol(-1.0)).contains("--tol -1"));
    assert!(refused(Hals::new(2).tol(0.1).eval_every(0)).contains("evaluations"));
    assert!(refused(Hals::new(2).mixed_precision(true).eval_every(0)).contains("mixed"));
}

#[test]
fn entries_whose_squares_leave_the_range_are_refused() {
    for scale in [1e-170, 1e200] {
        let x = blocks() * scale;
        let message = Hals::new(2).fit(&x).err().unwrap().message;
        assert!(message.contains("square"), "{message}");
        assert!(Search::over([2, 3]).runs(1).fit(&x).is_err_and(|e| e.message.contains("square")));
    }
    let x = blocks().mapv(|x| (x * 1e-25) as f32);
    assert!(Hals::new(2).fit(&x).err().unwrap().message.contains("f64"));
    assert!(Hals::new(2).fit(&x.mapv(f64::from)).unwrap().relative_error() < 1.0);
}

/// Dense data of few nonzeros are compressed: the factors are those of the same matrix with compressed rows.
#[test]
fn divergences_of_dense_data_visit_nonzeros_only() {
    let x =
        Array2::from_shape_fn((30, 20), |(i, j)| if (i * 7 + j * 5) % 4 == 0 { (1 + (i + j) % 6) as f64 } else { 0.0 });
    let sparse = sprs::CsMatI::<f64, i32, usize>::csr_from_dense(x.view(), 0.0);
    for name in ["kl-mu", "kl-cd"] {
        let words = ["--init=random".to_string()];
        let [dense, sparse] = [MatrixView::from(&x), MatrixView::from(&sparse)]
            .map(|x| fit(name, &words, x, &options(3, 20), None).unwrap());
        for (dense, sparse) in dense.factors.iter().zip(&sparse.factors) {
            assert_eq!(dense.values, sparse.values, "{name}");
        }
    }
}

/// Rows that are read have the factors of a matrix in memory, whatever their number.
#[test]
fn rows_that_are_read_are_factorised_as_in_memory() {
    let entry = |i: usize, j: usize| if !(i + 2 * j).is_multiple_of(3) { (1 + (i * (j + 2)) % 7) as f64 } else { 0.0 };
    let dense = Array2::from_shape_fn((90, 20), |(i, j)| entry(i, j));
    let sparse = sprs::CsMatI::<f64, i32, usize>::csr_from_dense(dense.view(), 0.0);
    let rows = |is_sparse: bool, at_once: usize| {
        let all = dense.clone();
        MatrixView::from_rows((90, 20), is_sparse, at_once, move |rows: std::ops::Range<usize>| {
            let part = all.slice(ndarray::s![rows, ..]).to_owned();
            Ok(if is_sparse {
                let part = sprs::CsMatI::<f64, i32, usize>::csr_from_dense(part.view(), 0.0);
                let (starts, columns, values) = part.into_raw_storage();
                Matrix::from_csr((starts.len() - 1, 20), starts, columns, values)?
            } else {
                Matrix::Dense(part)
            })
        })
    };
    let words = |words: &str| words.split(' ').map(String::from).collect::<Vec<_>>();
    for (name, given) in [("hals", "--init=nndsvda"), ("bpp", "--init=random"), ("kl-mu", "--init=random")] {
        for at_once in [1, 7, 1000] {
            for is_sparse in [false, true] {
                let x: MatrixView<'_, f64> = if is_sparse { (&sparse).into() } else { (&dense).into() };
                let found = [rows(is_sparse, at_once), x].map(|x| fit(name, &words(given), x, &options(3, 20), None));
                let [read, held] = found.map(Result::unwrap);
                for (a, b) in read.factors.iter().zip(&held.factors) {
                    let off = (&a.values - &b.values).mapv(f64::abs).fold(0.0, |most: f64, x| most.max(*x));
                    assert!(off < 1e-8 * b.values.iter().fold(0.0, |most: f64, x| most.max(*x)), "{name} {at_once}");
                }
            }
        }
    }
    let search = || Search::over([2, 3]).runs(2).max_iters(20).holdout(0.0);
    let points = [search().fit(rows(true, 11)), search().fit(&sparse)].map(|found| found.unwrap().points);
    for (a, b) in points[0].iter().zip(&points[1]) {
        assert!((a.rmse - b.rmse).abs() < 1e-8 && (a.drop.unwrap() - b.drop.unwrap()).abs() < 1e-6);
    }
    for (refused, why) in [
        (fit("kl-cd", &[], rows(true, 11), &options(3, 2), None).err(), "kl-cd needs the whole matrix in memory"),
        (search().holdout(0.1).fit(rows(true, 11)).err(), "--holdout"),
        (search().resample(Resample::Poisson).fit(rows(true, 11)).err(), "resample"),
        (project(rows(true, 11), &dense.t(), None, [0.0; 2], None, 1).err(), "must be in memory"),
    ] {
        assert!(refused.unwrap().message.contains(why), "{why}");
    }
    let failing = |at: usize, part: fn(usize) -> Result<Matrix<f64>>| {
        let given = MatrixView::from_rows((90, 20), false, 9, move |rows: std::ops::Range<usize>| {
            if rows.start >= at { part(rows.len()) } else { Ok(Matrix::Dense(Array2::ones((rows.len(), 20)))) }
        });
        fit("hals", &words("--init=random"), given, &options(3, 2), None).err().unwrap().message
    };
    assert_eq!(failing(45, |_| Err(Error::failed("the disk is gone"))), "the disk is gone");
    assert!(failing(45, |rows| Ok(Matrix::Dense(Array2::ones((rows, 19))))).contains("rows 45 to 54 are 9 x 19"));
    let negative = failing(45, |rows| Ok(Matrix::Dense(Array2::from_elem((rows, 20), -1.0))));
    assert!(negative.contains("row 45, column 0 is negative"), "{negative}");
}
